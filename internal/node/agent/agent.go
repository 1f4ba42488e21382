// Package agent is the part of Theseus that runs on every node: it does the tasks that the API asks of its
// node, keeps a joint phase in force, hands the paths to measure to the probers of its node, and publishes
// what they have measured. It neither sends nor answers probes: its end is no loss, and hides none.
//
// Everything goes on while the API server is away: probing, the joint phase, and the current task. What
// could not be published then is published when the API is back.
package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/step"
)

// Times that the agent works by.
const (
	keepInterval    = time.Second // between two checks of a joint phase
	publishInterval = time.Second // between two publications of a report, unless the plan of paths says otherwise
	// how long reports come four times as often as the plan of paths says, once it is new: a gate waits
	beginning      = 4 * time.Second
	retryInterval  = time.Second      // after the API could not be reached
	callTimeout    = 10 * time.Second // for one request
	verbTimeout    = 3 * time.Minute  // for one task
	resumeInterval = 10 * time.Second // between two tries to end an interrupted move
)

// Hands act on the node, as a *node.Node does.
type Hands interface {
	Do(ctx context.Context, verb string, args json.RawMessage) (node.Answer, error)
	Keep(ctx context.Context) (mended string, err error)
	Resume(ctx context.Context) ([]step.AdoptOutcome, error)
	BGP(ctx context.Context) *v1alpha1.BGP
}

// Agent works for one node.
type Agent struct {
	// Name is the node's name in the cluster.
	Name   string
	Node   Hands
	Client dynamic.Interface
	Log    *slog.Logger
	// Pod is the UID of the agent's own pod.
	Pod string
	// Probers are those of the node.
	Probers Probers
	// Alive is the address where the agent takes connections while it runs; empty is nowhere.
	Alive string

	since time.Time // when it began to run
}

// Run works until the context ends, which is no error.
func (a *Agent) Run(ctx context.Context) error {
	a.since = time.Now()
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { a.live(ctx) })
	working.Go(func() { a.keep(ctx) })
	working.Go(func() {
		ended := a.resume(ctx) // before any new task
		working.Go(func() {
			for ; !ended && ctx.Err() == nil; ended = a.resume(ctx) {
				_ = outage.Sleep(ctx, resumeInterval)
			}
		})
		a.tasks(ctx)
	})
	a.measure(ctx)
	return nil
}

// live takes connections and closes them: while it does, the agent is ready. An agent that was before may have the
// address for a moment.
func (a *Agent) live(ctx context.Context) {
	trouble := trouble{log: a.Log, what: "cannot say that the agent runs"}
	for ; a.Alive != "" && ctx.Err() == nil; _ = outage.Sleep(ctx, retryInterval) {
		listener, err := net.Listen("tcp", a.Alive)
		trouble.note(ctx, err)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { listener.Close() })
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			conn.Close()
		}
		stop()
		listener.Close()
	}
}

// keep checks the joint phase every second.
func (a *Agent) keep(ctx context.Context) {
	trouble := trouble{log: a.Log, what: "the joint phase cannot be kept"}
	for ctx.Err() == nil {
		mended, err := a.Node.Keep(ctx)
		if mended != "" {
			a.Log.Warn("the rules of the joint phase were changed by another program, and were "+
				"restored", "mended", mended)
		}
		trouble.note(ctx, err)
		_ = outage.Sleep(ctx, keepInterval)
	}
}

// resume ends the moves of pods that a former agent left half done, and says whether none is left.
func (a *Agent) resume(ctx context.Context) bool {
	pods, err := a.Node.Resume(ctx)
	if err != nil {
		a.Log.Error("moves of pods cannot be resumed", "error", err)
	}
	ended := err == nil
	for _, pod := range pods {
		ended = ended && pod.State != step.AdoptStuck
		if pod.Reason != "" {
			a.Log.Warn("an interrupted move", "pod", pod.Namespace+"/"+pod.Name, "state",
				pod.State, "reason", pod.Reason)
		}
	}
	return ended
}

// resource is the client of one of Theseus' kinds.
func (a *Agent) resource(kind string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
	return a.Client.Resource(gvr).Namespace(v1alpha1.Namespace)
}

// trouble logs something that is tried again and again: once when it begins to fail, or fails otherwise,
// and once when it works again.
type trouble struct {
	log  *slog.Logger
	what string
	said string
}

func (t *trouble) note(ctx context.Context, err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now == t.said || ctx.Err() != nil {
		return
	}
	if t.said = now; now == "" {
		t.log.Info("works again", "after", t.what)
		return
	}
	t.log.Warn(t.what, "error", now)
}
