package vocab

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of sentencepiece_model.proto, and how the fields are encoded.
const (
	modelPieces         = 1
	modelTrainerSpec    = 2
	modelNormalizerSpec = 3

	pieceText  = 1
	pieceScore = 2
	pieceKind  = 3

	trainerModelType   = 3
	trainerSpaceSuffix = 24
	trainerUnknown     = 45
	trainerBOS         = 46
	trainerEOS         = 47
	trainerPadding     = 48

	normalizerCharsMap    = 2
	normalizerSpacePrefix = 3
	normalizerExtraSpaces = 4
	normalizerEscape      = 5
)

type fieldTypes map[protowire.Number]protowire.Type

var (
	modelFields = fieldTypes{
		modelPieces: protowire.BytesType, modelTrainerSpec: protowire.BytesType, modelNormalizerSpec: protowire.BytesType,
	}
	pieceFields = fieldTypes{
		pieceText: protowire.BytesType, pieceScore: protowire.Fixed32Type, pieceKind: protowire.VarintType,
	}
	trainerFields = fieldTypes{
		trainerModelType: protowire.VarintType, trainerSpaceSuffix: protowire.VarintType,
		trainerUnknown: protowire.BytesType, trainerBOS: protowire.BytesType,
		trainerEOS: protowire.BytesType, trainerPadding: protowire.BytesType,
	}
	normalizerFields = fieldTypes{
		normalizerCharsMap: protowire.BytesType, normalizerSpacePrefix: protowire.VarintType,
		normalizerExtraSpaces: protowire.VarintType, normalizerEscape: protowire.VarintType,
	}
)

const maxModelSize = 1 << 28 // bytes of tokenizer.model; Gemma's has 4.7 MB

// ReadSentencePiece reads a tokenizer.model, SentencePiece's ModelProto, of a
// unigram or a byte pair encoding model. The file does not say whether texts
// get a token for their beginning or end: AddBOS and AddEOS are false, and the
// tokenizer_config.json beside the file may say otherwise.
func ReadSentencePiece(data []byte) (*Vocabulary, error) {
	v, err := readModel(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	return v, nil
}

func readModel(data []byte) (*Vocabulary, error) {
	if len(data) > maxModelSize {
		return nil, fmt.Errorf("%d bytes: more than %d are not accepted", len(data), maxModelSize)
	}
	// What is not written down has these values.
	v := &Vocabulary{Model: "unigram", AddSpacePrefix: true, RemoveExtraSpaces: true}
	names := map[protowire.Number]string{trainerUnknown: "<unk>", trainerBOS: "<s>", trainerEOS: "</s>", trainerPadding: "<pad>"}
	kinds := map[uint64]string{1: "unigram", 2: "llama", 3: "WORD", 4: "CHAR"}
	err := message(data, modelFields, func(num protowire.Number, f field) error {
		switch num {
		case modelPieces:
			if len(v.Tokens) == maxTokens {
				return fmt.Errorf("more than %d pieces", maxTokens)
			}
			t, err := readPiece(f.bytes)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(v.Tokens), err)
			}
			v.Tokens = append(v.Tokens, t)
			return nil
		case modelTrainerSpec:
			return inside("trainer_spec", f.bytes, trainerFields, func(num protowire.Number, f field) error {
				switch num {
				case trainerModelType:
					v.Model = kinds[f.number]
					if v.Model != "unigram" && v.Model != "llama" {
						return fmt.Errorf("model type %d (%s) is not supported; supported: 1 (UNIGRAM), 2 (BPE)", f.number, v.Model)
					}
				case trainerSpaceSuffix:
					if f.number != 0 {
						return errors.New("treat_whitespace_as_suffix is not supported; supported: spaces before words")
					}
				case trainerUnknown, trainerBOS, trainerEOS, trainerPadding:
					names[num] = string(f.bytes)
				}
				return nil
			})
		case modelNormalizerSpec:
			return inside("normalizer_spec", f.bytes, normalizerFields, func(num protowire.Number, f field) error {
				switch num {
				case normalizerCharsMap:
					v.CharsMap = append([]byte(nil), f.bytes...)
				case normalizerSpacePrefix:
					v.AddSpacePrefix = f.number != 0
				case normalizerExtraSpaces:
					v.RemoveExtraSpaces = f.number != 0
				case normalizerEscape:
					if f.number == 0 {
						return errors.New(`escape_whitespaces = false is not supported; supported: spaces spelled "▁"`)
					}
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(v.Tokens) == 0 {
		return nil, errors.New("no pieces: this is not a SentencePiece model, or the file is cut off")
	}
	// SentencePiece finds these by name and takes no others.
	v.Unknown = v.find(names[trainerUnknown], Unknown)
	v.BOS = v.find(names[trainerBOS], Control)
	v.EOS = v.find(names[trainerEOS], Control)
	v.Padding = v.find(names[trainerPadding], Control)
	return v, nil
}

// find returns the id of a token of a kind, or -1.
func (v *Vocabulary) find(text string, kind Kind) int {
	for id, t := range v.Tokens {
		if t.Kind == kind && t.Text == text {
			return id
		}
	}
	return -1
}

func readPiece(data []byte) (Token, error) {
	t := Token{Kind: Normal}
	err := message(data, pieceFields, func(num protowire.Number, f field) error {
		switch num {
		case pieceText:
			t.Text = string(f.bytes)
		case pieceScore:
			t.Score = math.Float32frombits(uint32(f.number))
		case pieceKind:
			if f.number < uint64(Normal) || f.number > uint64(Byte) {
				return fmt.Errorf("type %d; want 1 (NORMAL) to 6 (BYTE)", f.number)
			}
			t.Kind = Kind(f.number)
		}
		return nil
	})
	return t, err
}

// field is the value of a field: bytes if it has a length, else a number.
type field struct {
	bytes  []byte
	number uint64
}

func inside(name string, data []byte, types fieldTypes, visit func(protowire.Number, field) error) error {
	if err := message(data, types, visit); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// message calls visit with each field of a message that types names and reads
// over the others.
func message(data []byte, types fieldTypes, visit func(protowire.Number, field) error) error {
	size := len(data)
	for len(data) > 0 {
		at := size - len(data)
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("at byte %d: %w", at, protowire.ParseError(n))
		}
		data = data[n:]
		want, known := types[num]
		if known && typ != want {
			return fmt.Errorf("field %d at byte %d has wire type %d, want %d", num, at, typ, want)
		}
		var f field
		switch {
		case !known:
			n = protowire.ConsumeFieldValue(num, typ, data)
		case typ == protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		case typ == protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(data)
		default:
			var u uint32
			u, n = protowire.ConsumeFixed32(data)
			f.number = uint64(u)
		}
		if n < 0 {
			return fmt.Errorf("field %d at byte %d: %w", num, at, protowire.ParseError(n))
		}
		data = data[n:]
		if !known {
			continue
		}
		if err := visit(num, f); err != nil {
			return err
		}
	}
	return nil
}
