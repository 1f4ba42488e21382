package execute

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
)

// maxWrites is the flag of Writes.
const maxWrites = "max-writes-per-second"

// Writes bounds what a run writes to the API server.
type Writes struct {
	perSecond int
	command   *cobra.Command
}

// Register adds the flag.
func (w *Writes) Register(command *cobra.Command) {
	w.command = command
	command.Flags().IntVar(&w.perSecond, maxWrites, kube.WritesPerSecond,
		"writes to the API server a second, on average, tasks and journal included; 0 means no bound")
}

// Check refuses a bound that cannot be meant, and one for a run that this machine does not carry out.
func (w *Writes) Check(inCluster bool) error {
	if inCluster && w.command.Flags().Changed(maxWrites) {
		return exit.Fail(exit.Usage, "set it in the controller: the value maxWritesPerSecond of its chart",
			"--"+maxWrites+" is for a run on this machine, and --in-cluster is given")
	}
	if err := kube.ValidWrites(w.perSecond); err != nil {
		return exit.Fail(exit.Usage, "leave the flag out: the default is 50 writes a second",
			"--"+maxWrites+": %w", err)
	}
	return nil
}

// Elsewhere refuses a bound if another process carries the run out.
func (w *Writes) Elsewhere(name string) error {
	if w.command == nil || !w.command.Flags().Changed(maxWrites) {
		return nil
	}
	return exit.Fail(exit.Usage, "leave the flag out, and that process does what you ask for",
		"--"+maxWrites+" is for a run of this process, and another one has %s", name)
}

// Of sets the bound of a run.
func (w *Writes) Of(r *run.Run) *run.Run {
	r.MaxWrites = w.perSecond
	return r
}
