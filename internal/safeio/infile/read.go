// Package infile reads files that a person names, with a bound: a device, an endless pipe or a wrong file costs no more
// memory than the largest valid input. The meaning of the text belongs to the callers.
package infile

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// Read reads a file of at most bounded.MaxBytes.
func Read(name string) ([]byte, error) { return ReadUpTo(name, bounded.MaxBytes) }

// ReadUpTo reads a file of at most a number of bytes.
func ReadUpTo(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := bounded.ReadAll(file, most)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return text, nil
}

// ReadOr reads a file, or the given stream for the name "-".
func ReadOr(stream io.Reader, name string) ([]byte, error) {
	if name != "-" {
		return Read(name)
	}
	text, err := bounded.ReadAll(stream, bounded.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return text, nil
}

// ReadJSON reads a JSON document of at most a number of bytes.
func ReadJSON(name string, most int64, into any) error {
	text, err := ReadUpTo(name, most)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
