package tokenizer

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

// idsHash is how this package's golden data names a list of ids: SHA-256 over
// the ids as little-endian 32-bit numbers.
func idsHash(ids []int32) string {
	h := sha256.New()
	w := bufio.NewWriter(h)
	for _, id := range ids {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		w.Write(b[:])
	}
	w.Flush()
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestCompare is the Go half of testdata/compare.py, which sets the environment
// variable to a file {"tokenizer": path, "texts": [paths], "repeat": n} and reads
// the lines that this test prints: time and hash of the ids for each text.
func TestCompare(t *testing.T) {
	name := os.Getenv("ANEMONE_TOKENIZER_COMPARE")
	if name == "" {
		t.Skip("run by testdata/compare.py")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Tokenizer string
		Texts     []string
		Repeat    int
	}
	if err := json.Unmarshal(data, &job); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tok, err := Open(job.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("compare load %.6f\n", time.Since(start).Seconds())
	for i, name := range job.Texts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var first, best time.Duration
		var ids []int32
		for k := range max(1, job.Repeat) {
			start := time.Now()
			ids = tok.Encode(string(text), false)
			d := time.Since(start)
			if k == 0 {
				first, best = d, d
			}
			best = min(best, d)
		}
		fmt.Printf("compare text %d %d %s %.6f %.6f\n", i, len(ids), idsHash(ids), first.Seconds(), best.Seconds())
		start := time.Now()
		decoded := tok.Decode(ids, false)
		fmt.Printf("compare decode %d %x %.6f\n", i, sha256.Sum256([]byte(decoded)), time.Since(start).Seconds())
	}
}
