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

// Encode writes a document as indented JSON, whether anybody still reads or not.
func Encode(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(document) //nolint:errcheck // a closed pipe is the reader's wish
}
