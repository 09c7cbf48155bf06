package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"anemone/internal/anemll"
	"anemone/internal/checkpoint"
)

// Recommended returns the preferences of a package's recommended_sampling.
// Its settings mean that tokens are to be drawn unless do_sample says no.
func Recommended(r *anemll.RecommendedSampling) Preferences {
	if r == nil {
		return Preferences{}
	}
	return Preferences{DoSample: r.DoSample, Temperature: r.Temperature, TopK: r.TopK, TopP: r.TopP, MinP: r.MinP, RepetitionPenalty: r.RepetitionPenalty}
}

// Generation returns the preferences of a generation_config.json. As in
// transformers, its settings do nothing without do_sample: true.
func Generation(g *checkpoint.GenerationConfig) Preferences {
	if g == nil {
		return Preferences{}
	}
	p := Preferences{DoSample: g.DoSample, Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP, RepetitionPenalty: g.RepetitionPenalty}
	if p.DoSample == nil && p.wants() != nil {
		p.DoSample = new(bool)
	}
	return p
}

// wellKnownStops end a turn in the chat formats of the models that this
// layout is used for, whether or not a file says so.
var wellKnownStops = []string{"<|endoftext|>", "<|im_end|>", "<end_of_turn>", "<turn|>", "<|eot_id|>"}

// maxFile bounds the JSON files read here; real ones have kilobytes, a
// tokenizer_config.json with many added tokens some hundreds of them.
const maxFile = 16 << 20

// StopTokens returns the tokens that end a text or turn, ascending: the union
// of eos_token_id in config.json, its text_config and generation_config.json,
// eos_token in tokenizer_config.json, and the strings with which well-known
// chat formats end a turn. lookup gives the id of a token by its text, as the
// tokenizer's vocabulary has it. Files that are missing name nothing; what no
// token has for its text is left out.
func StopTokens(dir string, lookup func(token string) (int32, bool)) ([]int32, error) {
	var ids []int
	gen, err := checkpoint.Generation(dir)
	if err != nil {
		return nil, err
	}
	ids = append(ids, gen.EOS...)
	config, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	if config != nil {
		for _, c := range append(sub(config, "text_config"), config) {
			eos, err := c.EOS()
			if err != nil {
				return nil, err
			}
			ids = append(ids, eos...)
		}
	}
	tokens := slices.Clone(wellKnownStops)
	config, err = readConfig(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	if config != nil && config.Has("eos_token") {
		// A string, or an object of an added token.
		if objects := sub(config, "eos_token"); objects != nil {
			config = objects[0]
			if s, err := config.String("content"); err == nil {
				tokens = append(tokens, s)
			}
		} else if s, err := config.String("eos_token"); err != nil {
			return nil, err
		} else {
			tokens = append(tokens, s)
		}
	}
	var out []int32
	for _, id := range ids {
		if id >= 0 && id < 1<<31 {
			out = append(out, int32(id))
		}
	}
	for _, s := range tokens {
		if id, ok := lookup(s); ok && s != "" {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func sub(c *checkpoint.Config, key string) []*checkpoint.Config {
	if o, ok := c.Sub(key); ok {
		return []*checkpoint.Config{o}
	}
	return nil
}

// readConfig reads a JSON object; nil if the file does not exist.
func readConfig(path string) (*checkpoint.Config, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: more than %d MiB", path, maxFile>>20)
	}
	return checkpoint.ParseConfig(path, data)
}
