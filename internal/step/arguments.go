package step

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Arguments reads what an action's verb takes; a field that T does not have is an error.
func Arguments[T any](action Action) (T, error) {
	var args T
	decoder := json.NewDecoder(bytes.NewReader(action.Args()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&args); err != nil {
		return args, fmt.Errorf("action %s: arguments of %s: %w", action.ID, action.Verb(), err)
	}
	return args, nil
}

// Reader reads the JSON of arguments, each text once: those of many nodes are the same. Its results are shared, so
// callers must not change them.
type Reader[T any] map[string]T

// Read reads arguments.
func (r Reader[T]) Read(args json.RawMessage) (T, error) {
	if known, ok := r[string(args)]; ok {
		return known, nil
	}
	var read T
	err := json.Unmarshal(args, &read)
	if err == nil {
		r[string(args)] = read
	}
	return read, err
}
