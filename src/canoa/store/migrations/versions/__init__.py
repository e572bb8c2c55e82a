"""The revisions. What was released is never edited: a change is one more revision, and `revision.HEAD` names it."""
