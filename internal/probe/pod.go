package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// publishInterval is how often a probe pod writes its results.
const publishInterval = 500 * time.Millisecond

// Pod says what a probe pod does.
type Pod struct {
	// Dir is the folder shared with the node's agent, Network "old" or "new".
	Dir, Network string
	Ports        Ports
	Options      Options
	// Warn is told what went wrong and is tried again; nil means nobody.
	Warn func(error)
}

// RunPod serves probes, measures the paths that the agent asks for, and writes the results, until the
// context ends. Results of an earlier pod are removed first, so that none is taken for this one's. It
// fails only when it cannot serve.
func RunPod(ctx context.Context, pod Pod) error {
	if pod.Warn == nil {
		pod.Warn = func(error) {}
	}
	results := ResultsPath(pod.Dir, pod.Network)
	if err := os.Remove(results); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old results: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- Serve(ctx, "", pod.Ports)
	}()
	runner := NewRunner(pod.Options)
	measure(ctx, pod, runner, results)
	runner.Close()
	return <-served
}

// measure follows the paths file and publishes the results until the context ends.
func measure(ctx context.Context, pod Pod, runner *Runner, results string) {
	generations := make(chan int64)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		file := PathsPath(pod.Dir, pod.Network)
		Watch(ctx, file, func() {
			paths, err := ReadPaths(file)
			if err != nil {
				pod.Warn(err)
				return
			}
			runner.SetPaths(paths.Paths)
			select {
			case generations <- paths.Generation:
			case <-ctx.Done():
			}
		})
	}()
	publish(ctx, pod, runner, results, generations)
	<-watched
}

// publish writes results every half second, from the first generation on.
func publish(ctx context.Context, pod Pod, runner *Runner, results string, generations <-chan int64) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	generation, known := int64(0), false
	for {
		select {
		case <-ctx.Done():
			return
		case generation = <-generations:
			known = true
		case <-ticker.C:
			if !known {
				continue
			}
			file := ResultsFile{Generation: generation, At: time.Now(), Paths: runner.Results()}
			if err := WriteResults(results, file); err != nil {
				pod.Warn(err)
			}
		}
	}
}
