package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// publishInterval is how often a prober writes its results.
const publishInterval = 500 * time.Millisecond

// Pod configures a prober: a probe pod, or the prober of a node's host.
type Pod struct {
	// Dir is the folder shared with the node's agent, Network "old", "new" or "host".
	Dir, Network string
	// Address is where probes are answered; empty means all addresses.
	Address string
	// UID is the UID of the Kubernetes pod.
	UID     string
	Ports   Ports
	Options Options
	// Linger is how long probes are answered after the end of the context, until the senders know that the pod is about
	// to be removed.
	Linger time.Duration
	// Warn gets errors that are retried; it may be nil.
	Warn func(error)
}

// RunPod serves probes, measures the paths that the agent asks for, and writes the results, until the context ends.
// Then it stops sending, answers for pod.Linger, and writes the results of the probes in flight. It removes the results
// of an earlier pod first, so that they are not taken for its own. It fails only if it cannot serve.
func RunPod(ctx context.Context, pod Pod) error {
	if pod.Warn == nil {
		pod.Warn = func(error) {}
	}
	results := ResultsPath(pod.Dir, pod.Network)
	if err := os.Remove(results); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old results: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serve, err := open(serving, pod.Address, pod.Ports)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- serve()
	}()
	p := prober{Pod: pod, results: results, since: time.Now(), runner: NewRunner(pod.Options)}
	defer p.runner.Close()
	p.measure(ctx)
	p.runner.SetPaths(nil)
	select {
	case err := <-served:
		return err
	case <-time.After(pod.Linger):
	}
	p.write()
	stop()
	return <-served
}

// prober measures the paths that the agent asks for.
type prober struct {
	Pod
	results string // file
	since   time.Time
	runner  *Runner

	known      bool  // the agent has asked for paths
	generation int64 // of the last PathsFile
}

// measure follows the paths file and publishes the results until the context ends.
func (p *prober) measure(ctx context.Context) {
	generations := make(chan int64)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		file := PathsPath(p.Dir, p.Network)
		Watch(ctx, file, func() {
			paths, err := ReadPaths(file)
			if err != nil {
				p.Warn(err)
				return
			}
			p.runner.SetPaths(paths.Paths)
			select {
			case generations <- paths.Generation:
			case <-ctx.Done():
			}
		})
	}()
	p.publish(ctx, generations)
	<-watched
}

// publish writes results every half second, from the first generation on.
func (p *prober) publish(ctx context.Context, generations <-chan int64) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case p.generation = <-generations:
			p.known = true
		case <-ticker.C:
			p.write()
		}
	}
}

// write writes the results, unless no paths were asked for.
func (p *prober) write() {
	if !p.known {
		return
	}
	file := ResultsFile{Generation: p.generation, At: time.Now(), Pod: p.UID, Since: p.since, Paths: p.runner.Results()}
	if err := WriteResults(p.results, file); err != nil {
		p.Warn(err)
	}
}
