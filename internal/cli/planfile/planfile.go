package planfile

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// Read reads a plan.
func Read(file string) (*plan.Plan, error) {
	p, _, err := ReadData(file)
	return p, err
}

// ReadData reads a plan, and also returns its bytes.
func ReadData(file string) (*plan.Plan, []byte, error) {
	data, err := infile.ReadUpTo(file, document.MaxInput)
	if err != nil {
		return nil, nil, exit.Fail(exit.Usage, "make a plan: theseus plan --to calico ... -o plan.yaml", "%w", err)
	}
	p, err := plan.Read(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, data, nil
}

// Write prints the runbook, or the whole plan with -o yaml and -o json, and writes the file that -o names. If key is
// not "", it signs that file with an SSH key.
func Write(a *app.App, p *plan.Plan, key string) error {
	return write(a, p, key, "theseus apply ")
}

// Show is Write for the plan of a migration in the cluster, which the controller runs once it is approved.
func Show(a *app.App, p *plan.Plan) error {
	return write(a, p, "", "theseus approve "+p.Name+" --plan ")
}

// write is Write. next is the command for a file with the plan.
func write(a *app.App, p *plan.Plan, key, next string) error {
	encode := plan.Write
	if a.Output == "json" || strings.HasSuffix(a.Output, ".json") {
		encode = plan.WriteJSON
	}
	data, err := encode(p)
	if err != nil {
		return err
	}
	if _, err := journal.Fits(p); err != nil {
		fmt.Fprintf(a.Err, "note: theseus apply will refuse this plan: %v\n", err)
	}
	switch a.Output {
	case "", "text":
		err = a.Print(plan.Runbook(p))
	case "yaml", "-", "json":
		_, err = a.Out.Write(data)
	default:
		if err = outfile.Write(a.Output, data); err != nil {
			return err
		}
		if key != "" {
			if err := Sign(a, a.Output, p, data, key); err != nil {
				return err
			}
		}
		err = a.Print(fmt.Sprintf("%s\nwritten to %s; read it, then: %s%s\n",
			plan.Runbook(p), a.Output, next, a.Output))
	}
	return err
}
