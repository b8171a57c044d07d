"""From turns to token ids, and which of these the target itself would generate.

`datagen.template.chat.ChatTemplate` renders, finds the answers and tokenises;
`datagen.template.tokenizer.load_tokenizer` opens. Both load transformers, so nothing is imported here.
"""
