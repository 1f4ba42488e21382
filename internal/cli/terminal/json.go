package terminal

import (
	"encoding/json"
	"io"
)

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Encode writes a document as indented JSON, and ignores a closed pipe.
func Encode(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(document) //nolint:errcheck // the reader has closed the pipe on purpose
}
