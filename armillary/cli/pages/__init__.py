"""What sub-commands show: pages of HTML, each one file with its styles and scripts inside, and a terminal's table."""
