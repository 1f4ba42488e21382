package approval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

// Flags are the ways in which a machine that takes over a run learns which plan was approved. The plan itself comes
// from the cluster, where others may write; Theseus runs nothing of it until its hash is known from another source.
type Flags struct {
	File   string // of the plan
	Expect string // its hash
	Head   string // of the journal
	// Signers must have signed file.
	Signers planfile.Signers
	// Held is true if the lock may be held while a person is asked: the controller in the cluster releases it
	// afterwards.
	Held bool
	// Approved is true if the cluster has an approval of the plan by the current user, or if that user has read it.
	Approved bool
}

// Register adds the flags to a command.
func (f *Flags) Register(command *cobra.Command) {
	f.RegisterPlan(command)
	command.Flags().StringVar(&f.Head, "expect-head", "",
		"head of the journal, as theseus status shows it on the machine that ran the migration")
}

// RegisterPlan adds the flags that name the plan, and not those about the journal.
func (f *Flags) RegisterPlan(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.File, "plan", "", "file of the plan that was approved; the cluster's must be the same")
	flags.StringVar(&f.Expect, "expect", "",
		"hash of the plan that was approved, as in the plan's file and in theseus status")
	f.Signers.Register(command)
}

// Validate refuses incompatible flags.
func (f *Flags) Validate() error {
	if err := f.Signers.Validate(); err != nil {
		return err
	}
	if f.Signers.List != "" && f.File == "" {
		return exit.Fail(exit.Usage, "add --plan FILE; the signatures are files next to it",
			"--signed-by checks the signatures of a plan file, and no --plan is given")
	}
	return nil
}

const file = "approved.json"

// approved is this machine's record of a plan that it was told to run.
type approved struct {
	Plan    string `json:"plan"`    // hash
	Cluster string `json:"cluster"` // UID
}

// Keep remembers which plan this machine may run.
func Keep(p *plan.Plan) error {
	dir, err := statedir.Make(p.Name)
	if err != nil {
		return err
	}
	return outfile.WriteJSON(filepath.Join(dir, file), approved{p.Hash, p.Cluster.UID})
}

// Of is the hash of the plan that this machine was told to run under that name; "" if there is none.
func Of(migration string) (string, error) {
	dir, err := statedir.Of(migration)
	if err != nil {
		return "", err
	}
	var known approved
	err = infile.ReadJSON(filepath.Join(dir, file), document.MaxInput, &known)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", exit.Fail(exit.Failed, "move the file away, and give --plan or --expect",
			"%s: %w", filepath.Join(dir, file), err)
	}
	return known.Plan, nil
}

const editedHint = "no step of it was run: find out who wrote to the Migration and its PlanPages; `theseus resume " +
	"--plan FILE` runs only the plan in FILE"

// Known says whether the cluster's plan was approved: by a flag, or on this machine before. It returns an error if
// another plan was approved.
func (f *Flags) Known(p *plan.Plan) (bool, error) {
	named, err := f.Named(p)
	if named || err != nil {
		return named, err
	}
	own, err := Of(p.Name)
	if err == nil && own != "" && own != p.Hash {
		err = engine.NeedsPerson(editedHint, "the plan of %s in the cluster is not the one that this machine was "+
			"told to run: its hash is %s, not %s", p.Name, p.Hash, own)
	}
	return own != "", err
}

// Named says whether a flag names the cluster's plan. It returns an error if a flag names another one.
func (f *Flags) Named(p *plan.Plan) (named bool, err error) {
	if f.File != "" {
		own, data, err := planfile.ReadData(f.File)
		if err != nil {
			return false, err
		}
		if _, err := f.Signers.Check(f.File, data); err != nil {
			return false, err
		}
		if own.Hash != p.Hash {
			return false, engine.NeedsPerson(editedHint,
				"the plan of %s in the cluster is not the one in %s: its hash is %s, not %s",
				p.Name, f.File, p.Hash, own.Hash)
		}
		named = true
	}
	if f.Expect != "" {
		if !strings.EqualFold(strings.TrimSpace(f.Expect), p.Hash) {
			return false, engine.NeedsPerson(editedHint,
				"the plan of %s in the cluster is not the expected one: its hash is %s, not %s",
				p.Name, p.Hash, f.Expect)
		}
		named = true
	}
	return named, nil
}

// Approve makes sure that the plan from the cluster was approved, and records that. It asks if neither a flag nor this
// machine says so. head is the head of the journal that the run must find, if a person named or saw it.
func Approve(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, records []engine.Record,
	f *Flags) (head string, err error) {
	if err := SameCluster(ctx, a, client, p); err != nil {
		return "", err
	}
	if f.Head != "" {
		head = strings.ToLower(strings.TrimSpace(f.Head))
	}
	if err := run.MustBeHead(p.Name, records, head); err != nil {
		return "", err
	}
	known, err := f.Known(p)
	if err != nil {
		return "", err
	}
	if err := consistent(ctx, a, client, p, records); err != nil {
		return "", err
	}
	if !known && !f.Approved {
		if err := f.ask(ctx, a, client, p, records); err != nil {
			return "", err
		}
		head = run.HeadOf(records)
	}
	return head, Keep(p)
}

// consistent compares this machine's copy of the journal with the cluster's records. A process of this machine may have
// written both since these were read: records that they lack are looked for once more.
func consistent(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, records []engine.Record) error {
	local, err := Kept(p.Name)
	if err != nil {
		return err
	}
	_, err = Compare(local, p.Name, p.Hash, p.Steps, records)
	var contradiction *journal.ContradictError
	if !errors.As(err, &contradiction) || contradiction.Other != nil {
		return err
	}
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		records, err = journal.NewCluster(client.Dynamic, p.Name).Records(ctx)
		return err
	}); err != nil {
		return err
	}
	_, err = Compare(local, p.Name, p.Hash, p.Steps, records)
	return err
}

// SameCluster refuses a plan that was made for a cluster other than the one that holds it.
func SameCluster(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) error {
	if !p.OnNodes() {
		return nil // the identities of both clusters are compared once they are reached
	}
	var uid string
	err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		uid, err = client.ClusterUID(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading which cluster this is: %w", err)
	}
	if uid != p.Cluster.UID {
		return engine.NeedsPerson(
			"choose the cluster with --context; a plan is never copied from one cluster to another",
			"the plan of %s was made for another cluster (%s, this is %s)", p.Name, p.Cluster.UID, uid)
	}
	return nil
}

// Kept reads this machine's copy of the journal of a migration.
func Kept(name string) (journal.Copy, error) {
	dir, err := statedir.Of(name)
	if err != nil {
		return journal.Copy{}, err
	}
	return journal.ReadCopy(filepath.Join(dir, run.JournalFile))
}

// Compare returns the records of this machine's copy of the journal of a plan. Its error reports those that the cluster
// lacks, or has with other content. Of the plan's steps, it reads the IDs and which is the point of no return.
func Compare(kept journal.Copy, name, hash string, steps []step.Step, records []engine.Record) ([]engine.Record,
	error) {
	local, err := kept.Compare(hash, records)
	if err == nil {
		return local, nil
	}
	if state, failed := engine.Replay(local); failed == nil && state.PastReturn(steps) {
		err = fmt.Errorf("by this machine's journal, %s is past its point of no return: %w", name, err)
	}
	return local, err
}

// PrintIdentity prints the plan's hash, the journal's head, and how many records this machine's copy has.
func PrintIdentity(a *app.App, hash string, records, local []engine.Record) {
	fmt.Fprintf(a.Out, "plan: %s\n", hash)
	head := run.HeadOf(records)
	switch {
	case len(records) == 0:
		head = "no record yet"
	case head == "":
		head = engine.ErrUnchained.Error()
	default:
		head += fmt.Sprintf(", %s", cluster.Count(len(records), "record"))
	}
	if n := len(local); n > 0 {
		head += fmt.Sprintf("; this machine has %d", n)
	}
	fmt.Fprintf(a.Out, "journal: %s\n", head)
}

// ask shows what a plan would do from this machine, and asks.
func (f *Flags) ask(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, records []engine.Record) error {
	if !f.Held {
		if err := Free(ctx, client); err != nil {
			return err
		}
	}
	if _, ok := a.Terminal(); !ok {
		return exit.Fail(exit.Usage, "name the approved plan with --plan FILE, or its hash with --expect HASH; on a "+
			"terminal, Theseus shows the plan and asks",
			"this machine does not know which plan of %s was approved, and does not run a plan just because "+
				"the cluster holds it", p.Name)
	}
	if err := describeTakeOver(a.Err, p, records); err != nil {
		return err
	}
	word := p.To()
	if p.Guarded != nil { // a whole command line is too long to type
		word = p.Name
	}
	return a.Typed(ctx, word)
}

// Free returns a *journal.HeldError while another process has the lock, so that no person is asked in vain.
func Free(ctx context.Context, client *kube.Client) error {
	lease, ctx, err := journal.Acquire(ctx, run.Leases(client), journal.Holder())
	if err != nil {
		return err
	}
	return lease.Release(context.WithoutCancel(ctx))
}

// describeTakeOver describes what a plan that only the cluster knows would do on this machine.
func describeTakeOver(to io.Writer, p *plan.Plan, records []engine.Record) error {
	_, err := fmt.Fprintf(to, "This machine does not know the plan of %s. It comes from the cluster, where others "+
		"may have changed it.\n%s", p.Name, describe(p, records, true))
	return err
}

// Describe describes what the plan of a migration does that the controller in the cluster runs.
func Describe(to io.Writer, p *plan.Plan, records []engine.Record) error {
	_, err := fmt.Fprintf(to, "%s: %s, about %s\n%s", p.Name, p.Size(), p.Estimate.About(), describe(p, records, false))
	return err
}

// describe lists what a plan does. here is true if it runs on this machine.
func describe(p *plan.Plan, records []engine.Record, here bool) string {
	reach := plan.ReachOf(p)
	b := &strings.Builder{}
	fmt.Fprintf(b, "plan:    %s\n         %s -> %s by %s, %s, made %s\n", p.Hash, p.From(), p.To(), p.Strategy,
		cluster.Count(len(p.Steps), "step"), p.MadeAt.UTC().Format("2006-01-02 15:04"))
	fmt.Fprintf(b, "journal: %s, head %s\n", cluster.Count(len(records), "record"), run.HeadOf(records))
	if here {
		several(b, "It runs these commands on this machine:", reach.Commands)
		several(b, "It uses from this machine:", reach.Uses)
	}
	several(b, "It deletes:", reach.Deletes)
	if reach.NoReturn > 0 {
		past := "ahead"
		if state, err := engine.Replay(records); err == nil && state.PastReturn(p.Steps) {
			past = "behind"
		}
		fmt.Fprintf(b, "The point of no return is %s: step %d, %s.\n", past, reach.NoReturn, reach.Title)
	}
	return b.String()
}

func several(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		lines = []string{"nothing"}
	}
	fmt.Fprintln(b, title)
	for _, line := range lines {
		fmt.Fprintln(b, "  "+line)
	}
}
