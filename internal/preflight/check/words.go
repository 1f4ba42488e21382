package check

import (
	"fmt"
	"strings"
)

// Names joins names for a message, and shortens a long list.
func Names(all []string) string {
	const most = 10
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
