"""Twenty prompts for comparing whole models: chat, code, Unicode, and one long context."""

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM.<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)

_LONG = (
    "The harbour master keeps a ledger. On day {0}, ship number {1} brought {2} crates of oranges and left "
    "before noon; the clerk noted the wind, the tide and the name of the captain, and closed the book. "
)

PROMPTS = (
    CHAT.format("What is the capital of France?"),
    CHAT.format("Explain photosynthesis to a child in two sentences."),
    CHAT.format("Write a haiku about rain."),
    CHAT.format("List three uses of a paper clip."),
    CHAT.format("Translate 'good morning' into Spanish and German."),
    CHAT.format("What is 17 plus 25?"),
    CHAT.format("Why is the sky blue?"),
    CHAT.format("Summarise: queues form where work arrives faster than it is served."),
    "def fibonacci(n):\n    ",
    "SELECT name, COUNT(*) FROM orders\nWHERE ",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    '{"name": "Ada", "born": 1815, "field": "',
    "import numpy as np\n\n# the mean of each column\nmeans = ",
    "La Révolution française commence en",
    "Привет! Меня зовут",
    "日本の首都は",
    "The emoji 🎉 is used to celebrate; the emoji 🌧️ means",
    "Once upon a time",
    "".join(_LONG.format(n, n * 7 % 31, n * 13 % 97) for n in range(31)) + "In the end,",
)
