"""Write the generated pages."""

from tools.reference import write

write()
