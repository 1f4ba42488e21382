package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// runNewPod is a container of a new pod: `answer` answers probes until it is told to stop, and `try` tries the paths of
// an environment variable once, and writes the result as its termination message.
func runNewPod(ctx context.Context, log *slog.Logger, args []string) error {
	if len(args) != 1 || args[0] != "answer" && args[0] != "try" {
		return usage{errors.New("new-pod answer, or new-pod try")}
	}
	if args[0] == "answer" {
		log.Info("new pod answers")
		return probe.Serve(ctx, "", probe.PodPorts())
	}
	var paths []v1alpha1.Path
	if err := json.Unmarshal([]byte(os.Getenv(manifest.PathsVariable)), &paths); err != nil || len(paths) == 0 {
		return usage{fmt.Errorf("%s must have the paths to try: %w", manifest.PathsVariable,
			errors.Join(err, errors.New("it has none")))}
	}
	log.Info("new pod tries", "paths", len(paths))
	text, err := json.Marshal(probe.Try(ctx, paths, path.TryFor))
	if err != nil {
		return err
	}
	return os.WriteFile(terminationLog, text, 0o600)
}

// terminationLog is where Kubernetes reads a container's termination message. Kubernetes makes the file.
const terminationLog = "/dev/termination-log"
