package kind

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Reach is what a plan does in addition to applying objects: a person has to know it before a plan from a cluster runs.
type Reach struct {
	// Commands are run on the machine that runs the plan.
	Commands []string
	// Uses are files and addresses that this machine opens, and which credentials they get.
	Uses []string
	// Deletes are objects that it deletes, and nodes that it cleans or removes.
	Deletes []string
	// NoReturn is the number of the step that is the point of no return, 0 where there is none, and Title that step's.
	NoReturn int
	Title    string
}

// Once adds a line to a list that does not have it.
func Once(list *[]string, text string) {
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// Command adds a command that runs without a shell.
func (r *Reach) Command(words []string) {
	if len(words) > 0 {
		Once(&r.Commands, shell.Words(words...))
	}
}
