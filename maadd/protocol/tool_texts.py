"""Title and description of every tool, written for an agent that sees them for the first time.

Each says what the tool does, when a neighbour is the better choice, and ends with one example.
They are paid for in every conversation: all 49 entries of `tools/list` stay under 40 KB, so an
argument is explained in one place only (filters in `maad_query`, previews in
`maad_bulk_delete`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class ToolText(msgspec.Struct, frozen=True):
    """What a client shows (`title`) and what an agent reads (`description`)."""

    title: str
    description: str


TOOL_TEXTS: Mapping[str, ToolText] = MappingProxyType(
    {
        "maad_projects": ToolText(
            "List projects",
            "List the projects of this server with description and your highest role in each. "
            "Call it first when several projects exist, then bind with maad_use_project, or "
            "maad_use_projects for more than one. Example: {}",
        ),
        "maad_use_project": ToolText(
            "Bind one project",
            "Bind this session to one project; later calls need no project argument. The binding "
            "is final for the session: take maad_use_projects if you will need several. "
            'Example: {"name":"field-office","as":"reader"}',
        ),
        "maad_use_projects": ToolText(
            "Bind several projects",
            "Bind this session to several projects, all or none; every later call must then name "
            "its project. Final for the session. For a single project take maad_use_project. "
            'Example: {"names":["north","south"]}',
        ),
        "maad_current_session": ToolText(
            "Show session",
            "Show the binding, effective roles, token identity and subscription of this session. "
            "Use it when unsure which project or role is active; maad_projects shows what could "
            "be bound. Example: {}",
        ),
        "maad_subscribe": ToolText(
            "Subscribe to changes",
            "Get a resources/updated notification when records change, for all or some types; "
            "replaces an earlier subscription. Missed events are not repeated: catch up with "
            'maad_changes_since. Example: {"docTypes":["work_order"]}',
        ),
        "maad_unsubscribe": ToolText(
            "End subscription",
            "Stop the change notifications of this session, begun with maad_subscribe. Example: {}",
        ),
        "maad_scan": ToolText(
            "Scan raw Markdown",
            "Structure of raw Markdown, no schema needed: of a file its frontmatter, headings and "
            "annotations; of a directory field frequencies and likely document families. For "
            "planning an import; registered records are read with maad_get and maad_query. "
            'Example: {"path":"_import"}',
        ),
        "maad_summary": ToolText(
            "Project summary",
            "First look at a project: its record types with counts and sample ids, totals, "
            "warnings; cheap. A record is a Markdown file of some type: frontmatter fields and a "
            "body. Then maad_schema shows a type's fields, maad_describe goes deeper. Example: {}",
        ),
        "maad_describe": ToolText(
            "Describe project",
            "Registry and extraction in depth: paths and id prefixes of types, the eleven "
            "primitives, the most frequent subtypes and values, capabilities. Use it after "
            "maad_summary to choose terms for maad_search. Example: {}",
        ),
        "maad_schema": ToolText(
            "Show schema",
            "Fields of one type: value type, required, indexed, enum values, format, ref target, "
            "and the template's headings. Read it before maad_create or maad_update, and to see "
            'which fields maad_query can filter. Example: {"docType":"work_order"}',
        ),
        "maad_get": ToolText(
            "Get record",
            "Read one record by id. Depth hot: frontmatter; warm with block: one section too; "
            "cold: the whole body; full: resolved refs, extracted objects, related records and "
            "latest note, no body. Without an id use maad_query. "
            'Example: {"docId":"wo-0007","depth":"cold"}',
        ),
        "maad_query": ToolText(
            "Query records",
            "Find records of a type by indexed fields: filter, sort, page, return fields or bodies "
            "(depth cold). filters: field or ref->field to value, {op,value} or list of these, all "
            "ANDed; op is eq neq gt gte lt lte in contains between. To count use maad_aggregate. "
            "Example: "
            '{"docType":"work_order","filters":{"cost":{"op":"gt","value":100}},"fields":["asset"]}',
        ),
        "maad_search": ToolText(
            "Search objects",
            "Find extracted objects: inline [[type:value|label]] annotations and indexed fields "
            "(as date, amount, quantity for numbers, contact, else entity; subtype is the field). "
            "Not a search in prose; for records by field use "
            'maad_query. Example: {"primitive":"entity","subtype":"person","query":"lind"}',
        ),
        "maad_related": ToolText(
            "Related records",
            "One-hop neighbours of a record, by refs in frontmatter and mentions in text, outgoing "
            "and incoming. For several hops or how two records connect use "
            "maad_relationship_paths; to read fields across refs maad_join. "
            'Example: {"docId":"ast-pump-12","direction":"incoming"}',
        ),
        "maad_relationship_paths": ToolText(
            "Relationship paths",
            "Bounded multi-hop walk from a record along refs (extractionKinds adds mentions), with "
            "evidence for each edge: how two records connect, or what lies around one. Check "
            "truncation before concluding that nothing is there. One hop: maad_related. "
            'Example: {"startDocId":"ast-pump-12","targetDocId":"ven-northwind","maxDepth":3}',
        ),
        "maad_aggregate": ToolText(
            "Aggregate records",
            "Count records per value of an indexed field, of a field reached through refs, or per "
            "period of a date, with an optional sum, avg, min or max. Use it instead of paging "
            "through maad_query. "
            'Example: {"docType":"work_order","groupBy":"asset->site",'
            '"metric":{"field":"cost","op":"sum"}}',
        ),
        "maad_join": ToolText(
            "Join along refs",
            "List records of a type with fields of the records they refer to, in one call instead "
            "of one maad_get a row. Fields must be indexed. For totals use maad_aggregate. "
            'Example: {"docType":"work_order","refs":["asset"],"fields":["status"],'
            '"refFields":{"asset":["name"]}}',
        ),
        "maad_verify": ToolText(
            "Verify claim or index",
            "Check before you state it: mode field compares a record's value (docId, field, "
            "expected), count a number of records (docType, expectedCount); integrity compares "
            "files with the index. For dangling refs alone use maad_find_orphans. "
            'Example: {"mode":"field","docId":"wo-0007","field":"status","expected":"open"}',
        ),
        "maad_find_orphans": ToolText(
            "Find dangling refs",
            "List records whose refs point to missing or deleted records, and those ids, for the "
            "project, a type or one record. Other drift is found by maad_verify mode integrity; "
            "maad_repair_where prunes such refs. "
            'Example: {"docType":"work_order"}',
        ),
        "maad_changes_since": ToolText(
            "Changes since cursor",
            "Records created or updated after a cursor, oldest first; without one from the "
            "beginning. Keep resumeCursor for the next poll; nextCursor only walks pages. "
            "maad_subscribe pushes instead; for the commits of one record use maad_history. "
            'Example: {"docTypes":["asset"],"limit":200}',
        ),
        "maad_semantic_search": ToolText(
            "Search bodies",
            "Ranked search in record bodies: exact by words, semantic by meaning, hybrid both. "
            "Answers tell when they were degraded. For values of fields use maad_query, for "
            'annotations maad_search. Example: {"query":"worn drive seal","mode":"hybrid","k":5}',
        ),
        "maad_history": ToolText(
            "Record history",
            "Commits that changed one record, newest first: action, summary, author, time, sha; "
            "deleted records too. For a whole project over a period use maad_audit. "
            'Example: {"docId":"wo-0007","limit":10}',
        ),
        "maad_audit": ToolText(
            "Project audit",
            "Which records were changed in a period, how often and last by whom, from Git. One "
            "record in detail: maad_history; to poll for changes: maad_changes_since. "
            'Example: {"since":"2031-02-01","docType":"work_order"}',
        ),
        "maad_document_receipt": ToolText(
            "Document receipt",
            "Proof of how a record is persisted: committed, indexed, on disk, with content digest. "
            "For hosts that reconcile after maad_create_guarded or a lost answer; to read content "
            "use maad_get. Example: "
            '{"contract":"document-persistence-v1","docType":"memo","docId":"me-314"}',
        ),
        "maad_create_contract": ToolText(
            "Create contract",
            "Observe the complete schema contract of a type and its digest, which hosts pass to "
            "maad_create_guarded. Long contracts come in pages with delivery. To look up fields "
            'use maad_schema. Example: {"contract":"create-contract-v1","docType":"memo"}',
        ),
        "maad_instructions": ToolText(
            "Managed guides",
            "Guide files of the project (MAAD.md, _skills/): check compares them with this "
            "version; refresh (admin) rewrites outdated and missing ones, only as a dry run unless "
            'dryRun is false. Example: {"action":"check"}',
        ),
        "maad_validate": ToolText(
            "Validate records",
            "Check stored records against today's schemas, one or the whole project, changing "
            "nothing. Useful after schema edits. maad_verify checks claims and index drift "
            'instead. Example: {"docId":"wo-0007","includeConstraints":true}',
        ),
        "maad_create": ToolText(
            "Create record",
            "Create a record, if it is valid. Read maad_schema first. fields never contain doc_id, "
            "doc_type or schema; without docId one is derived, without body the type's template is "
            "used. Repeat a lost call with the same idempotencyKey. For batches use "
            "maad_bulk_create. "
            'Example: {"docType":"vendor","fields":{"name":"Northwind"}}',
        ),
        "maad_create_guarded": ToolText(
            "Create record, guarded",
            "Create exactly this document, only under the schema of maad_create_contract and the "
            "expected content digest. For hosts: when in doubt ask maad_document_receipt, never "
            "send again. Otherwise use maad_create. Example: "
            '{"contract":"guarded-create-v1","docType":"memo","docId":"me-3","fields":{},'
            '"body":"","expectedSchemaDigest":"<sha256>","expectedContentDigest":"<sha256>",'
            '"allowedHistoryModes":["audit"]}',
        ),
        "maad_update": ToolText(
            "Update record",
            "Change one record: fields are merged by key, unsetFields removes keys, body replaces "
            "the body, appendBody adds to it; what is not named stays. expectedVersion from "
            "maad_get keeps you from overwriting others. For batches use maad_bulk_update. "
            'Example: {"docId":"wo-0007","fields":{"status":"done"},"expectedVersion":3}',
        ),
        "maad_bulk_create": ToolText(
            "Create records",
            "Create many records (usually up to 50) in one commit, each item as in maad_create. "
            "Unless atomic, items fail one by one and are listed in failed, while ok stays true. "
            "For one record use maad_create. Example: "
            '{"records":[{"docType":"part","fields":{"name":"Seal"},"body":"Spare."}]}',
        ),
        "maad_bulk_update": ToolText(
            "Update records",
            "Change many records (usually up to 50) in one commit, each item as in maad_update. "
            "Items fail one by one and are listed in failed, while ok stays true. For one record "
            "use maad_update. "
            'Example: {"updates":[{"docId":"wo-0007","fields":{"status":"done"}}]}',
        ),
        "maad_delete": ToolText(
            "Delete record",
            "Delete one record, without preview. soft hides it and keeps the file, hard removes "
            "it. Refs to it break unless onInboundRefs is refuse. Several: maad_bulk_delete, or "
            'maad_delete_where by condition. Example: {"docId":"wo-0007","mode":"soft"}',
        ),
        "maad_bulk_delete": ToolText(
            "Delete records by id",
            "Delete the records with these ids in one commit. Without confirm true it only "
            "previews; with expectPreview the confirmed call fails if the set changed since. By "
            "condition: maad_delete_where; a single one: maad_delete. "
            'Example: {"docIds":["par-7","par-8"]}',
        ),
        "maad_delete_where": ToolText(
            "Delete records by filter",
            "Delete the records of a type that match filters (as in maad_query); previews unless "
            "confirmed. A whole type is deleted only with explicit filters {}. Known ids: "
            'maad_bulk_delete. Example: {"docType":"part","filters":{"status":"scrapped"}}',
        ),
        "maad_purge_soft_deleted": ToolText(
            "Purge soft-deleted",
            "Remove for good the files that soft deletes left before olderThan (default: 30 days "
            "ago), oldest first; previews unless confirmed, as maad_bulk_delete does. Live records "
            "are never touched: those are for maad_delete. "
            'Example: {"olderThan":"2031-01-01T00:00:00Z"}',
        ),
        "maad_repair_where": ToolText(
            "Repair records",
            "Repair records of a type: prune_orphan_refs drops refs to missing records, "
            "fix_schema_drift moves records to the current schema version; previews unless "
            "confirmed. Find candidates with maad_find_orphans and maad_verify. "
            'Example: {"docType":"work_order","repairTypes":["prune_orphan_refs"]}',
        ),
        "maad_reindex": ToolText(
            "Reindex",
            "Bring the index in line with the files; records are not changed. Rarely needed, as "
            "edits are noticed. force reads all files anew; prune also drops rows of folders that "
            "are really gone (lists them unless confirm is true). With wait false it runs as a "
            "job, listed in maad_health; a call that times out leaves its job running. After "
            'schema edits use maad_reload first. Example: {"force":true}',
        ),
        "maad_reload": ToolText(
            "Reload schemas",
            "Load edited registry and schema files. If they are faulty the old ones stay in force "
            "and the errors are returned. Then maad_reindex the types listed as stale. For "
            "projects and tokens use maad_instance_reload. Example: {}",
        ),
        "maad_health": ToolText(
            "Health",
            "Operating state: index, history and pending writes, worker, watcher, jobs, sessions, "
            "memory, advisories. For diagnosing failures; for content begin with maad_summary. "
            "Example: {}",
        ),
        "maad_flush": ToolText(
            "Flush history",
            "Commit pending writes now (history modes batch and snapshot) and retry failed "
            "commits. Writes are safe on disk without it. For a named recovery point use "
            "maad_backup. Example: {}",
        ),
        "maad_backup": ToolText(
            "Recovery points",
            "Named recovery points, as Git tags on the last commit: create, list, delete. Make one "
            "before risky cleanups. maad_flush commits without a tag. "
            'Example: {"mode":"create","label":"pre-cleanup"}',
        ),
        "maad_instance_reload": ToolText(
            "Reload instance",
            "Read the instance configuration and token registry again: projects are added, "
            "removed, reconfigured without a restart. For the schemas of one project use "
            "maad_reload. Example: {}",
        ),
        "maad_subscriptions": ToolText(
            "List subscriptions",
            "All live change subscriptions of the server, counted by project and type. Your own "
            "is in maad_current_session. Example: {}",
        ),
        "maad_issue_token": ToolText(
            "Issue token",
            "Issue an access token; its plaintext appears once, in this answer. It can not exceed "
            "your own rights. To renew a secret use maad_rotate_token. Example: "
            '{"role":"writer","projects":[{"name":"permits"}],"agentId":"agt-import"}',
        ),
        "maad_revoke_token": ToolText(
            "Revoke token",
            "End a token for good and close its sessions; its record stays for the books. To "
            'replace a secret use maad_rotate_token. Example: {"id":"tok-4be1c07a92d3"}',
        ),
        "maad_rotate_token": ToolText(
            "Rotate token",
            "Replace a token by a new one with the same rights and a new id; the old one ends at "
            "once and the new plaintext appears once. To end it without successor use "
            'maad_revoke_token. Example: {"id":"tok-4be1c07a92d3"}',
        ),
        "maad_list_tokens": ToolText(
            "List tokens",
            "List tokens with role, projects, owner and expiry, without secrets. For one token use "
            'maad_show_token. Example: {"includeRevoked":true}',
        ),
        "maad_show_token": ToolText(
            "Show token",
            "Show one token's record, without its secret. To find ids use maad_list_tokens. "
            'Example: {"id":"tok-4be1c07a92d3"}',
        ),
    }
)
