package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Recorder stores a driver's counts in a directory of the node, which outlives the driver's pod.
type Recorder struct {
	Dir       string // one file per pod; see Path
	Pod, Node string
	Listen    string // address that answers /stats and /ready; empty for none
	Log       io.Writer
}

// Path is the file with the driver's Summary, one line of JSON, rewritten every second and at the end.
func (r Recorder) Path() string { return filepath.Join(r.Dir, r.Pod+".json") }

// Drive runs the driver until ctx ends and no request is in flight, and records all the time.
func (r Recorder) Drive(ctx context.Context, d *Driver) error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	stop, err := r.serve(d)
	if err != nil {
		return err
	}
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-done:
			s, err := r.record(d, true)
			return errors.Join(err, s.Print(r.Log))
		case <-ticks.C:
			s, err := r.record(d, false)
			if err != nil {
				return err
			}
			if n%10 == 0 {
				fmt.Fprintf(r.Log, "%s sent %d, failed %d\n", s.Updated.UTC().Format(time.RFC3339),
					s.Sent(), s.Failed())
			}
		}
	}
}

// record replaces the file. A reader sees the old one or the new one, never half.
func (r Recorder) record(d *Driver, final bool) (tally.Summary, error) {
	s := r.summary(d)
	s.Final = final
	line, err := json.Marshal(s)
	if err != nil {
		return s, fmt.Errorf("record: %w", err)
	}
	unfinished := filepath.Join(r.Dir, "."+r.Pod)
	if err := os.WriteFile(unfinished, append(line, '\n'), 0o644); err != nil {
		return s, fmt.Errorf("record: %w", err)
	}
	if err := os.Rename(unfinished, r.Path()); err != nil {
		return s, fmt.Errorf("record: %w", err)
	}
	return s, nil
}

func (r Recorder) summary(d *Driver) tally.Summary {
	s := d.Summary(time.Now())
	s.Pod, s.Node = r.Pod, r.Node
	return s
}

// serve answers /stats with the summary and /ready once every kind of requests works.
func (r Recorder) serve(d *Driver) (stop func(), err error) {
	if r.Listen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", r.Listen)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.summary(d)) // the client may have disconnected
	})
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !d.Warm() {
			http.Error(w, "some kind of requests does not work yet", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(l) // ends with Close
	return func() { server.Close() }, nil
}
