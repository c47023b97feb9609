"""Pages of HTML that sub-commands write: each is one file with its styles and scripts inside."""
