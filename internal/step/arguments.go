package step

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Arguments reads what an action's verb takes; a field that T does not have is an error.
func Arguments[T any](action Action) (T, error) {
	var args T
	decoder := json.NewDecoder(bytes.NewReader(action.Args))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&args); err != nil {
		return args, fmt.Errorf("action %s: arguments of %s: %w", action.ID, action.Verb, err)
	}
	return args, nil
}
