package vocab_test

import (
	"fmt"
	"log"

	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/vocab"
)

func ExampleVocabulary_TokenizerJSON() {
	v := vocab.Defaults("llama", "default")
	v.AddSpacePrefix = false
	v.Tokens = []vocab.Token{
		{Text: "<unk>", Kind: vocab.Unknown},
		{Text: "<s>", Kind: vocab.Control},
		{Text: "</s>", Kind: vocab.Control},
		{Text: "s", Score: -4, Kind: vocab.Normal},
		{Text: "e", Score: -5, Kind: vocab.Normal},
		{Text: "a", Score: -6, Kind: vocab.Normal},
		{Text: "ea", Score: -1, Kind: vocab.Normal},
		{Text: "sea", Score: -2, Kind: vocab.Normal},
	}
	data, err := v.TokenizerJSON()
	if err != nil {
		log.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tok.Encode("sea", true))
	// Output: [1 7]
}

func ExampleVocabulary_TokenizerConfig() {
	v := vocab.Defaults("llama", "default")
	v.Tokens = []vocab.Token{
		{Text: "<unk>", Kind: vocab.Unknown},
		{Text: "<s>", Kind: vocab.Control},
		{Text: "</s>", Kind: vocab.Control},
	}
	v.MaxLength = 4096
	data, err := v.TokenizerConfig("")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", data)
	// Output:
	// {
	//   "add_bos_token": true,
	//   "add_eos_token": false,
	//   "bos_token": "<s>",
	//   "clean_up_tokenization_spaces": false,
	//   "eos_token": "</s>",
	//   "model_max_length": 4096,
	//   "tokenizer_class": "PreTrainedTokenizerFast",
	//   "unk_token": "<unk>"
	// }
}
