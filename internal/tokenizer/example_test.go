package tokenizer_test

import (
	"fmt"
	"log"

	"anemone/internal/tokenizer"
)

func Example() {
	tok, err := tokenizer.Open("../../testdata/checkpoints/tiny-qwen3")
	if err != nil {
		log.Fatal(err)
	}
	ids := tok.Encode("the sea<|im_end|>", false)
	fmt.Println(ids)
	for _, id := range ids {
		fmt.Printf("%q\n", tok.TokenBytes(id))
	}
	fmt.Println(tok.Decode(ids, true))
	// Output:
	// [83 258 516 64 839]
	// "t"
	// "he"
	// " se"
	// "a"
	// "<|im_end|>"
	// the sea
}

func ExampleDecoder() {
	tok, err := tokenizer.Open("../../testdata/checkpoints/tiny-qwen3")
	if err != nil {
		log.Fatal(err)
	}
	d := tok.NewDecoder(true)
	for _, id := range tok.Encode("go 😀!", false) { // the emoji is four tokens
		fmt.Printf("%q ", d.Push(id))
	}
	fmt.Printf("%q\n", d.Flush())
	// Output:
	// "g" "o" " " "" "" "" "😀" "!" ""
}
