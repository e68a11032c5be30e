from optfair.rows.sources import Chunk as Chunk
from optfair.rows.sources import RowSource as RowSource
