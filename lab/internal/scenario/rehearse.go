package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Rehearse runs theseus rehearse with a scratch cluster of its own.
type Rehearse struct {
	Rig     Rig       // Nodes is 0 for as many as the copy needs, Network "" for that of the original
	From    []string  // snapshot of the original
	Ignore  []string  // what does not tell classes of nodes apart
	Args    []string  // more arguments of theseus rehearse
	Keep    bool      // do not remove the cluster
	In      io.Reader // standard input of theseus
	Err, To io.Writer // standard error of theseus, and its output
}

// NeedError says that a lab cannot be the scratch cluster of a copy.
type NeedError struct{ Why, Hint string }

func (e *NeedError) Error() string { return e.Why }

// The files of a rehearsal, in the folder of its rig.
const (
	resultFile = "rehearsal.json"
	pageFile   = "report.html"
)

// needs are what theseus rehearse needs prints.
type needs struct {
	Network               string
	Workers, ControlPlane int
	Classes               []struct {
		ControlPlane bool
		Nodes        []string
	}
}

// nodes is how many nodes a scratch cluster gets that may have any number. If the original has several workers, there
// are two, with paths between them.
func (n needs) nodes() int {
	workers := 0
	for _, class := range n.Classes {
		if !class.ControlPlane {
			workers += len(class.Nodes)
		}
	}
	return max(n.Workers, min(2, workers)) + n.ControlPlane
}

// Run starts the scratch cluster, runs theseus rehearse, and removes the cluster, also if ctx ends. If theseus fails,
// the error is its *exec.ExitError.
func (h Rehearse) Run(ctx context.Context) (err error) {
	r := &h.Rig
	for _, old := range []string{resultFile, pageFile} { // of an earlier run, which this one may never replace
		if err := os.Remove(filepath.Join(r.Dir, old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := h.fit(ctx); err != nil {
		return err
	}
	defer func() {
		down := "theseus-lab down --name " + r.Name
		switch {
		case !r.began: // a running lab of its name is another's
		case h.Keep:
			r.Say("the cluster stays; its kubeconfig is %s; `%s` removes it", r.kubeconfig(), down)
		default:
			r.Say("removing the cluster")
			if failed := r.Down(); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", down, failed))
			}
		}
	}()
	r.Say("a scratch cluster of %s on %s", spec.Count(r.Nodes, "node"), r.Network)
	if err := r.Up(ctx, r.Network); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	args, file, err := h.arguments(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	r.Say("theseus %s", strings.Join(args, " "))
	end := h.theseus(ctx, h.To, args...)
	if file != "" {
		h.report(context.WithoutCancel(ctx), file)
	}
	return end
}

// fit decides on the network and the nodes of the cluster, by what the copy needs.
func (h *Rehearse) fit(ctx context.Context) error {
	if err := os.MkdirAll(h.Rig.Dir, 0o755); err != nil {
		return err
	}
	var out strings.Builder
	if err := h.theseus(ctx, &out, append([]string{"rehearse", "needs", "-o", "json"}, h.copied()...)...); err != nil {
		return err
	}
	var need needs
	if err := json.Unmarshal([]byte(out.String()), &need); err != nil {
		return fmt.Errorf("theseus rehearse needs: %w", err)
	}
	h.Rig.Network = cmp.Or(h.Rig.Network, need.Network)
	least := need.Workers + need.ControlPlane
	if h.Rig.Nodes == 0 {
		h.Rig.Nodes = need.nodes()
	}
	switch {
	case !slices.Contains(network.Names(), h.Rig.Network):
		return &NeedError{"the original has the network " + h.Rig.Network + ", which no lab has",
			"rehearse on a cluster of your own: theseus rehearse --context SCRATCH"}
	case h.Rig.Nodes > spec.MaxNodes:
		return &NeedError{fmt.Sprintf("the copy needs %d nodes, and a lab has at most %d", h.Rig.Nodes, spec.MaxNodes),
			"--ignore KEY merges classes of nodes; theseus rehearse needs --from SNAPSHOT lists them"}
	case h.Rig.Nodes < least:
		return &NeedError{fmt.Sprintf("--nodes %d: the copy needs %d or more", h.Rig.Nodes, least),
			"leave out --nodes, or merge classes of nodes with --ignore KEY"}
	}
	h.Rig.control = need.ControlPlane
	return nil
}

// copied are the flags that say what is copied.
func (h *Rehearse) copied() []string {
	args := []string{"--from", strings.Join(h.From, ",")}
	if len(h.Ignore) > 0 {
		args = append(args, "--ignore", strings.Join(h.Ignore, ","))
	}
	return args
}

// theseus runs theseus with streams of its own, and in a process group of its own: a Ctrl-C of the terminal reaches
// theseus-lab alone, which passes it on once. theseus takes a second interrupt for the wish to stop at once. A group
// that is not the terminal's cannot read from it, so that theseus gets no terminal.
func (h *Rehearse) theseus(ctx context.Context, out io.Writer, args ...string) error {
	command := h.Rig.command(ctx, h.Rig.Theseus, args...)
	command.Stdin, command.Stdout, command.Stderr = h.In, out, h.Err
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if file, ok := h.In.(*os.File); ok {
		if about, err := file.Stat(); err != nil || about.Mode()&os.ModeCharDevice != 0 {
			command.Stdin = nil
		}
	}
	return command.Run()
}

// arguments marks the nodes of the control plane, and returns the arguments of theseus rehearse, with the file of its
// result; "" if the user names one.
func (h *Rehearse) arguments(ctx context.Context) (args []string, file string, err error) {
	r := &h.Rig
	for _, node := range r.NodeNames()[r.Nodes-r.control:] {
		if _, err := r.Kubectl(ctx, nil, "label", "node", node, "node-role.kubernetes.io/control-plane="); err != nil {
			return nil, "", err
		}
	}
	args = append(append([]string{"rehearse"}, h.copied()...), "--context", "theseus-lab-"+r.Name, "--yes")
	if _, given := h.value("--agent-image"); !given {
		args = append(args, "--agent-image", AgentImage)
	}
	to, _ := h.value("--to")
	if _, given := h.value("--manifest"); !given && slices.Contains(network.Names(), to) {
		manifest, err := r.ManifestFile(ctx, to)
		if err != nil {
			return nil, "", err
		}
		args = append(args, "--manifest", manifest)
	}
	_, short := h.value("-o")
	if _, long := h.value("--output"); !short && !long {
		file = filepath.Join(r.Dir, resultFile)
		args = append(args, "-o", file)
	}
	args = append(args, h.faults()...)
	return append(args, h.Args...), file, nil
}

// faults are the commands of the faults that the user names and that only a lab can make. Each takes its fault back
// before it ends, also when it is ended early.
func (h *Rehearse) faults() (args []string) {
	named, _ := h.value("--faults")
	lab := func(verb string) string {
		return fmt.Sprintf("%s %s --name %s \"$THESEUS_FAULT_NODE\"", h.Rig.Lab, verb, h.Rig.Name)
	}
	// not this text, which is in a command line too, but that of an API server
	server := fmt.Sprintf("\"kube-[a]piserver.*labs/%s/\"", h.Rig.Name)
	for _, fault := range []struct{ name, begins, lasts, ends string }{
		{"api", "pkill -STOP -f " + server, "30", "pkill -CONT -f " + server},
		{"power", lab("node kill"), "90", lab("node start")},
		{"loss", lab("link --loss 1%"), "90", lab("link --clear")},
	} {
		asked := slices.ContainsFunc(strings.Split(named, ","), func(text string) bool {
			name, _, _ := strings.Cut(text, "@")
			return name == fault.name
		})
		if asked && !slices.ContainsFunc(h.Args, func(arg string) bool {
			return strings.HasPrefix(strings.TrimPrefix(arg, "--fault-command="), fault.name+"=")
		}) {
			args = append(args, "--fault-command", fmt.Sprintf("%s=sh -c 'ends() { %s; }; trap ends EXIT; "+
				"trap \"exit 1\" INT TERM; %s && sleep %s'", fault.name, fault.ends, fault.begins, fault.lasts))
		}
	}
	return args
}

// value is the value of a flag among the user's arguments.
func (h *Rehearse) value(flag string) (value string, given bool) {
	for i, arg := range h.Args {
		if after, joined := strings.CutPrefix(arg, flag+"="); joined {
			return after, true
		}
		if arg == flag {
			return strings.Join(h.Args[i+1:min(i+2, len(h.Args))], ""), true
		}
	}
	return "", false
}

// report makes the page of the run, while its cluster is there, and says where it and the result are.
func (h *Rehearse) report(ctx context.Context, file string) {
	text, err := os.ReadFile(file)
	if err != nil { // theseus did not begin
		return
	}
	h.Rig.Say("the result is in %s", file)
	var result struct{ Migration string }
	if json.Unmarshal(text, &result) != nil || result.Migration == "" {
		return
	}
	page := filepath.Join(h.Rig.Dir, pageFile)
	if h.theseus(ctx, h.To, "report", result.Migration, "--context", "theseus-lab-"+h.Rig.Name, "-o", page) == nil {
		h.Rig.Say("the report is in %s", page)
	}
}
