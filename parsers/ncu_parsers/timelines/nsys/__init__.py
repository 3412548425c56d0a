"""Read the exports of Nsight Systems: SQLite databases, .nsys-rep recordings, the CSV tables of nsys stats."""
