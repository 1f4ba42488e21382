package check

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Names joins names for a message, and cuts a long list.
func Names(all []string) string {
	const most = 10
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// ShellJSON is a value as JSON, inside of the single quotes in which a shell takes it.
func ShellJSON(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // selectors have && in them
	if err := encoder.Encode(value); err != nil {
		return "''"
	}
	return "'" + strings.ReplaceAll(strings.TrimSpace(b.String()), "'", `'\''`) + "'"
}
