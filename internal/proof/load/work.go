package load

import (
	"context"
	"encoding/json"
	"net"
	"net/http"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// Work listens on a port of loopback and carries out the tasks that Conduct sends, until ctx ends. A task ends early if
// its request does.
func Work(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathMeasure, func(w http.ResponseWriter, r *http.Request) {
		var task bench.Task
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&task); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, Measure(r.Context(), task), nil)
	})
	return serveHTTP(ctx, listener, mux)
}

// Measure carries out a task: the sample has its result, or an error.
func Measure(ctx context.Context, task bench.Task) (s bench.Sample) {
	switch task.Kind {
	case bench.Stream:
		bytes, took, again, err := flood(ctx, task.Target, task.Streams, task.Rate, task.Duration)
		s.Value, s.Retransmits = float64(bytes)*8/1e6/took.Seconds(), again
		switch {
		case err != nil:
			s.Error = failure(err)
		case bytes == 0:
			s.Error = "nothing arrived in time"
		}
		return s
	case bench.Blast:
		b, err := blast(ctx, task.Target, task.Rate, task.Duration)
		if err != nil {
			return bench.Sample{Error: failure(err)}
		}
		s.Sent, s.Arrived = b.sent, b.arrived
		s.Value = float64(b.arrived*bench.DatagramBytes) * 8 / 1e6 / b.took.Seconds()
		if b.arrived == 0 {
			s.Error = "nothing arrived in time"
		}
		return s
	case bench.Datagrams, bench.RoundTrip:
		e, end, err := startEchoes(ctx, task.Target, task.Rate, task.Duration)
		if err != nil {
			return bench.Sample{Error: failure(err)}
		}
		end()
		return sampleOf(e.flow)
	case bench.Connections:
		return operated(ctx, task, connect(task.Target))
	case bench.Requests:
		do, end := request(task.Target)
		defer end()
		return operated(ctx, task, do)
	case bench.Questions:
		do, server, err := resolve(resolvConf)
		if err != nil {
			return bench.Sample{Error: err.Error()}
		}
		s = operated(ctx, task, do)
		s.Server = server
		return s
	}
	return bench.Sample{Error: "unknown kind of measurement: " + string(task.Kind)}
}

func operated(ctx context.Context, task bench.Task, do func(context.Context, int) error) bench.Sample {
	f := newFlow(task.Rate, task.Duration)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if task.Most > 0 {
		go f.watch(working, task.Most, string(task.Kind), stop)
	}
	operate(working, f, do)
	s := sampleOf(f)
	if why := context.Cause(working); why != nil && ctx.Err() == nil {
		s.Stopped = why.Error()
	}
	return s
}

func sampleOf(f *flow) bench.Sample {
	latency, rate := f.sum(len(f.micros))
	return bench.Sample{Value: rate, Latency: &latency, Error: f.lastError()}
}
