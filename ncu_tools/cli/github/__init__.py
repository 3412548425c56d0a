"""Output for GitHub: Markdown with folded parts, annotations at source lines, a comment on a pull request."""
