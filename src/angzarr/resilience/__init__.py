"""Pure rules about failure, each with the port it needs beside it."""
