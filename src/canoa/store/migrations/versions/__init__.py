"""The revisions. What was released is never edited: a change is one more revision, and `schema.HEAD` names it."""
