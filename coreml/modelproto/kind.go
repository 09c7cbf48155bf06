package modelproto

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"anemone/coreml/modelproto/modelpb"
)

// MLProgram is the kind of the models that this program reads and writes.
const MLProgram Kind = 502

// Kind is a kind of model: the number of its field in the specification,
// which is also the first number of a compiled bundle.
type Kind int

// kinds names what the specification defines, fields 200 to 3000 of a model.
var kinds = map[Kind]string{
	200:       "pipeline classifier",
	201:       "pipeline regressor",
	202:       "pipeline",
	300:       "GLM regressor",
	301:       "support vector regressor",
	302:       "tree ensemble regressor",
	303:       "neural network regressor",
	304:       "Bayesian probit regressor",
	400:       "GLM classifier",
	401:       "support vector classifier",
	402:       "tree ensemble classifier",
	403:       "neural network classifier",
	404:       "k-nearest neighbors classifier",
	500:       "neural network",
	501:       "item similarity recommender",
	MLProgram: "ML Program",
	555:       "custom model",
	556:       "linked model",
	560:       "class confidence thresholding",
	600:       "one-hot encoder",
	601:       "imputer",
	602:       "feature vectorizer",
	603:       "dictionary vectorizer",
	604:       "scaler",
	606:       "categorical mapping",
	607:       "normalizer",
	609:       "array feature extractor",
	610:       "non-maximum suppression",
	900:       "identity",
	2000:      "text classifier",
	2001:      "word tagger",
	2002:      "vision feature print",
	2003:      "sound analysis preprocessing",
	2004:      "gazetteer",
	2005:      "word embedding",
	2006:      "audio feature print",
	3000:      "serialized model",
}

// String returns the kind in words.
func (k Kind) String() string {
	if s, ok := kinds[k]; ok {
		return s
	}
	return "kind " + strconv.Itoa(int(k))
}

// Unmarshal reads a model's specification, which must be an ML Program: other
// kinds are refused by name before they are read.
func Unmarshal(b []byte) (*modelpb.Model, error) {
	kind, err := kindOf(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a model specification: %w", err)
	case kind == 0:
		return nil, errors.New("not a model specification: it holds no model of a known kind")
	case kind != MLProgram:
		return nil, fmt.Errorf("the model is a %v (type %d); only ML Programs (type %d) are supported", kind, int(kind), int(MLProgram))
	}
	m := &modelpb.Model{}
	// Deep enough for 64 nested blocks that hold literals nested as deep.
	if err := (proto.UnmarshalOptions{RecursionLimit: 1000}).Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("damaged model specification: %w", err)
	}
	return m, nil
}

// kindOf finds the last model among the fields of a specification, as the
// last one counts; 0 if there is none.
func kindOf(b []byte) (kind Kind, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return 0, protowire.ParseError(m)
		}
		if _, ok := kinds[Kind(num)]; ok {
			kind = Kind(num)
		}
		b = b[n+m:]
	}
	return kind, nil
}

// Marshal returns the stored form of a specification: the same bytes for
// the same model.
func Marshal(m *modelpb.Model) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
