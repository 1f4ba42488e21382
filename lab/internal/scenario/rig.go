// Package scenario runs whole stories in a lab with the built programs, as a user would run them: the network of a
// cluster with real traffic is replaced, and the losses are counted. The demo, the tests and the comparison all run the
// same story with a different change.
package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/workload"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Rig is a lab with the programs that act on it.
type Rig struct {
	// Applied is the file of the plan that was applied last.
	Applied string
	User    string    // kubeconfig with which rigtest runs theseus; empty means an administrator's
	Name    string    // of the lab
	Nodes   int       // number of nodes
	Lab     string    // path of theseus-lab
	State   string    // state directory of theseus-lab; empty means its default
	Theseus string    // path of theseus
	Dir     string    // folder for the story's files
	Out     io.Writer // output for the reader
	Outside bool      // also deploy clients on the nodes' own network
	Network string    // network that the cluster starts on; empty means flannel
	To      string    // network to change to; empty means calico
	Images  []string  // files of images that the target needs and that nodes of Network do not have
	Proxy   string    // mode of kube-proxy; empty means iptables
	Flags   []string  // more flags of the change, such as --bake 2s

	Rate   int    // requests a second that each client sends inside the cluster; 0 is that of the demos
	Window string // how long the windows are into which the plan is divided; "" does not divide it
	// requests a second, of each kind, that each client sends out of the cluster; 0 is the clients' default
	WorldRate int

	// that has the images of a release of theseus, and folder in it; empty means that the nodes hold the lab's own
	Registry string

	Strategy string // of the change; empty lets the planner choose

	Members []string // names of the lab's nodes, if they are not the original ones
	Gone    string   // folder with the clients' records of removed nodes

	control int // the last nodes, which play nodes of a control plane

	began bool // Up started the lab, or was interrupted: there is something to remove

	took time.Duration // how long the change took, with its check and plan

	open bool // the application's policy was removed, and with it the client that it denies
}

// NodeNames are the names of the lab's nodes.
func (r *Rig) NodeNames() []string {
	if r.Members != nil {
		return r.Members
	}
	names := make([]string, r.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("%s-node-%d", r.Name, i+1)
	}
	return names
}

// Say prints a headline.
func (r *Rig) Say(format string, args ...any) {
	fmt.Fprintf(r.Out, "\n== %s\n", fmt.Sprintf(format, args...))
}

// run runs a program and returns its standard output. All output also goes to out; if out is nil, standard error is
// part of the error.
func (r *Rig) run(ctx context.Context, stdin io.Reader, out io.Writer, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := r.command(ctx, program, args...)
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	if out != nil {
		command.Stdout, command.Stderr = io.MultiWriter(out, &stdout), out
	}
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w %s", filepath.Base(program), strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// command is a program that acts on the rig's lab; the end of ctx interrupts it.
func (r *Rig) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Env = append(os.Environ(), "THESEUS_KUBECONFIG="+r.kubeconfig(),
		"THESEUS_STATE_DIR="+filepath.Join(r.Dir, "state"))
	if r.State != "" {
		command.Env = append(command.Env, "THESEUS_LAB_DIR="+r.State)
	}
	return command
}

func (r *Rig) kubeconfig() string { return filepath.Join(r.Dir, "kubeconfig") }

// Up starts the lab on a network; Calico may have a version, as in calico@v3.28.5.
func (r *Rig) Up(ctx context.Context, network string) error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	network, version, _ := strings.Cut(network, "@")
	args := []string{"up", "--name", r.Name, "--nodes", fmt.Sprint(r.Nodes), "--network", network, "--calico", version}
	if slices.Contains([]string{"flannel", "bridge", "kindnet"}, network) { // which do not enforce policy themselves
		args = append(args, "--policy", "kube-router")
	}
	if r.Proxy != "" {
		args = append(args, "--proxy-mode", r.Proxy)
	}
	_, err := r.run(ctx, nil, r.Out, r.Lab, args...)
	r.began = err == nil || ctx.Err() != nil
	if err != nil {
		return err
	}
	path, err := r.run(ctx, nil, nil, r.Lab, "kubeconfig", "--name", r.Name)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(strings.TrimSpace(path))
	if err != nil {
		return err
	}
	return os.WriteFile(r.kubeconfig(), config, 0o600)
}

// Manifest is the manifest of a network, for this lab.
func (r *Rig) Manifest(ctx context.Context, network string, flags ...string) (string, error) {
	return r.run(ctx, nil, nil, r.Lab, append([]string{"manifest", network, "--name", r.Name}, flags...)...)
}

// ManifestFile is the path of a file with the manifest of a network.
func (r *Rig) ManifestFile(ctx context.Context, network string, flags ...string) (string, error) {
	text, err := r.Manifest(ctx, network, flags...)
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.Dir, network+".yaml")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// Down removes the lab that Up began. A running lab of that name, for which Up fails, is another's and stays.
func (r *Rig) Down() error {
	if !r.began {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := r.run(ctx, nil, nil, r.Lab, "down", "--name", r.Name)
	return err
}

// Kubectl runs kubectl and returns its output.
func (r *Rig) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	return r.run(ctx, stdin, nil, r.Lab, append([]string{"kubectl", "--name", r.Name}, args...)...)
}

// InLab runs theseus-lab on this lab and returns its output.
func (r *Rig) InLab(ctx context.Context, args ...string) (string, error) {
	return r.run(ctx, nil, nil, r.Lab, append(args, "--name", r.Name)...)
}

// OnNode runs a command in a node's namespaces and returns its output.
func (r *Rig) OnNode(ctx context.Context, node string, command ...string) (string, error) {
	args := append([]string{"node", "exec", "--name", r.Name, node, "--"}, command...)
	return r.run(ctx, nil, nil, r.Lab, args...)
}

// Run runs theseus and shows its output.
func (r *Rig) Run(ctx context.Context, args ...string) (string, error) {
	fmt.Fprintf(r.Out, "$ theseus %s\n", strings.Join(args, " "))
	return r.run(ctx, nil, r.Out, r.Theseus, args...)
}

// Deploy starts the workload and its clients and waits until all are ready.
func (r *Rig) Deploy(ctx context.Context) error {
	// The API server's machine is not a node; it also plays the outside world.
	host, err := r.Kubectl(ctx, nil, "-n", "default", "get", "endpointslices", "kubernetes", "-o",
		"jsonpath={.endpoints[0].addresses[0]}")
	if err != nil {
		return err
	}
	world := workload.World{Address: net.JoinHostPort(strings.TrimSpace(host), strconv.Itoa(controlplane.WorldPort)),
		Rate: r.WorldRate}
	manifests := [][]byte{workload.Manifest(r.Rate, world)}
	if r.Outside {
		manifests = append(manifests, workload.Outside())
	}
	for _, text := range manifests {
		if _, err := r.Kubectl(ctx, bytes.NewReader(text), "apply", "-f", "-"); err != nil {
			return err
		}
	}
	if _, err = r.Kubectl(ctx, nil, "-n", workload.Namespace, "wait", "--for=condition=Ready",
		"pod", "--all", "--timeout=120s"); err != nil {
		return fmt.Errorf("%w\n%s", err, r.unready(ctx))
	}
	return nil
}

// unready says how the pods of the workload are, and what Kubernetes warns of.
func (r *Rig) unready(ctx context.Context) string {
	pods, _ := r.Kubectl(ctx, nil, "-n", workload.Namespace, "get", "pods", "-o", "wide") //nolint:errcheck // says less
	warnings, _ := r.Kubectl(ctx, nil, "get", "events", "-A", "--field-selector",         //nolint:errcheck // as above
		"type=Warning", "--sort-by=.lastTimestamp")
	return pods + warnings
}

// Steady waits until the clients have sent requests for a while without a new failure or leak, and returns their counts
// at that time: failures while the cluster started are not part of the story.
func (r *Rig) Steady(ctx context.Context) (tally.Summary, error) {
	before, err := r.Count(ctx)
	if err != nil {
		return before, err
	}
	for {
		select {
		case <-ctx.Done():
			return before, fmt.Errorf("the traffic never became steady: %w; the last counts are %+v\n%s",
				ctx.Err(), before, r.unready(context.WithoutCancel(ctx)))
		case <-time.After(5 * time.Second):
		}
		now, err := r.Count(ctx)
		if err != nil {
			return now, err
		}
		if now.Failed() == before.Failed() && now.Sent() > before.Sent()+1000 &&
			(r.open || denied(now) > denied(before)) {
			return now, nil
		}
		before = now
	}
}

// Count adds up the clients' records on all nodes.
func (r *Rig) Count(ctx context.Context) (tally.Summary, error) {
	var all []tally.Summary
	add := func(node, text string) error {
		decoder := json.NewDecoder(strings.NewReader(text))
		for {
			var one tally.Summary
			if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("the clients' records on %s: %w", node, err)
			}
			all = append(all, one)
		}
	}
	for _, node := range r.NodeNames() {
		text, err := r.OnNode(ctx, node, "sh", "-c", Records)
		if err == nil {
			err = add(node, text)
		}
		if err != nil {
			return tally.Summary{}, err
		}
	}
	if r.Gone != "" {
		files, err := filepath.Glob(filepath.Join(r.Gone, "*"))
		if err != nil {
			return tally.Summary{}, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = add(filepath.Base(file), string(text))
			}
			if err != nil {
				return tally.Summary{}, err
			}
		}
	}
	return tally.Sum(all), nil
}

// Records prints the clients' records on a node.
const Records = "cat " + workload.RecordDir + "/*.json 2>/dev/null || true"
