from optfair.rows.row_source import Chunk as Chunk
from optfair.rows.row_source import RowSource as RowSource
