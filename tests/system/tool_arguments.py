"""For every tool, arguments that each check before the role accepts; those of tools that need
none are left out."""

from __future__ import annotations

from typing import Any

ARGUMENTS: dict[str, dict[str, Any]] = {
    "maad_use_project": {"name": "main"},
    "maad_use_projects": {"names": ["main"]},
    "maad_scan": {"path": "."},
    "maad_schema": {"docType": "note"},
    "maad_get": {"docId": "nte-1"},
    "maad_query": {"docType": "note"},
    "maad_search": {"primitive": "entity"},
    "maad_related": {"docId": "nte-1"},
    "maad_relationship_paths": {"startDocId": "nte-1"},
    "maad_aggregate": {"docType": "note", "groupBy": "rank"},
    "maad_join": {"docType": "note", "refs": ["title"]},
    "maad_verify": {"mode": "integrity"},
    "maad_semantic_search": {"query": "x"},
    "maad_create_contract": {"contract": "create-contract-v1", "docType": "note"},
    "maad_create_guarded": {
        "contract": "guarded-create-v1",
        "docType": "note",
        "docId": "nte-new",
        "fields": {"title": "x"},
        "body": "",
        "expectedSchemaDigest": "0" * 64,
        "expectedContentDigest": "0" * 64,
        "allowedHistoryModes": ["audit"],
    },
    "maad_document_receipt": {
        "contract": "document-persistence-v1",
        "docType": "note",
        "docId": "nte-1",
    },
    "maad_history": {"docId": "nte-1"},
    "maad_instructions": {"action": "check"},
    "maad_validate": {"docId": "nte-1"},
    "maad_create": {"docType": "note", "fields": {"title": "x"}},
    "maad_update": {"docId": "nte-1", "fields": {"title": "x"}},
    "maad_bulk_create": {"records": [{"docType": "note", "fields": {"title": "x"}}]},
    "maad_bulk_update": {"updates": [{"docId": "nte-1", "fields": {"title": "x"}}]},
    "maad_delete": {"docId": "nte-1"},
    "maad_bulk_delete": {"docIds": ["nte-1"]},
    "maad_delete_where": {"docType": "note", "filters": {"rank": 1}},
    "maad_repair_where": {"docType": "note", "repairTypes": ["fix_schema_drift"]},
    "maad_backup": {"mode": "list"},
    "maad_issue_token": {"role": "reader", "projects": [{"name": "main"}]},
    "maad_revoke_token": {"id": "tok-000000000000"},
    "maad_rotate_token": {"id": "tok-000000000000"},
    "maad_show_token": {"id": "tok-000000000000"},
}
