package chat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"anemone/internal/tokenizer/chat"
)

func Example() {
	tmpl, err := chat.Load("../../../testdata/checkpoints/tiny-qwen3")
	if err != nil {
		log.Fatal(err)
	}
	text, err := tmpl.Render([]chat.Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "Hello"},
	}, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// <|im_start|>system
	// Be brief.<|im_end|>
	// <|im_start|>user
	// Hello<|im_end|>
	// <|im_start|>assistant
}

func ExampleNew() {
	tmpl, err := chat.New("{% for tool in tools %}{{ bos_token }}{{ tool | tojson }}{% endfor %}", map[string]string{"bos_token": "<s>"})
	if err != nil {
		log.Fatal(err)
	}
	// Keys keep their order and numbers their form.
	text, err := tmpl.Render(nil, chat.Options{Tools: []json.RawMessage{[]byte(`{"name":"f","default":1.0,"a":1e16}`)}})
	fmt.Println(text, err)
	// Output: <s>{"name": "f", "default": 1.0, "a": 1e+16} <nil>
}

func ExampleRaiseError() {
	tmpl, err := chat.New("{% if messages[0].role != 'user' %}{{ raise_exception('Begin with the user.') }}{% endif %}", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = tmpl.Render([]chat.Message{{Role: "assistant"}}, chat.Options{})
	var raised *chat.RaiseError
	fmt.Println(errors.As(err, &raised))
	fmt.Println(err)
	// Output:
	// true
	// the chat template refuses the conversation: Begin with the user.
}
