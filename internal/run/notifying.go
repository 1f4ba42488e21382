package run

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// typePrefix begins the types of events.
const typePrefix = "dev.theseus.run."

// notifyEnd is how long the end of a run waits for notifications, if a later process can send them.
var notifyEnd = 10 * time.Second

// eventTypes are the types of events by the reason of the news, without typePrefix.
var eventTypes = map[string]string{"Began": "began", "Resumed": "resumed", "GroupDone": "wave-done",
	"GateFailed": "gate-failed", "Paused": "paused", "RollingBack": "rolling-back", "NeedsPerson": "needs-person",
	"Complete": "done", "RolledBack": "rolled-back"}

// Notified is the data of an event.
type Notified struct {
	Migration string `json:"migration"`
	// Plan is the hash of the plan, and Cluster the UID of the namespace kube-system.
	Plan    string `json:"plan"`
	Cluster string `json:"cluster,omitempty"`
	// Record is the number of the journal's record that the event is about.
	Record  int    `json:"record"`
	Warning bool   `json:"warning"`
	Message string `json:"message"`
	// Report is the command that makes the report.
	Report string `json:"report"`
}

// Telling sends the news of a run that no process has sent yet. The Migration has the number of the last record whose
// news was sent.
type Telling struct {
	sender   *notify.Sender
	narrator *Narrator
	plan     *plan.Plan
	told     int
}

// Tell begins to tell the news of a plan's run after the record that is numbered told. A failure is only a warning.
func Tell(ctx context.Context, client dynamic.Interface, target *notify.Target, p *plan.Plan,
	told int, say func(string)) *Telling {
	return &Telling{narrator: NewNarrator(NewScript(p)), plan: p, told: told,
		sender: target.Start(ctx, func(ctx context.Context, e notify.Event) error {
			return journal.SetNotified(ctx, client, p.Name, e.Data.(Notified).Record)
		}, say)}
}

// Record tells the news of the next record of the run, if no process has. It does not wait.
func (t *Telling) Record(r engine.Record) {
	if t == nil {
		return
	}
	if news := t.narrator.News(r); news.Reason != "" && r.Seq > t.told {
		t.sender.Add(t.event(r, news, strconv.Itoa(r.Seq)))
	}
}

// End ends the telling at once. Another process tells the rest.
func (t *Telling) End() {
	if t != nil {
		t.sender.End()
	}
}

// event is the event of a record.
func (t *Telling) event(one engine.Record, news News, id string) notify.Event {
	p := t.plan
	return notify.Event{
		ID: fmt.Sprintf("%s/%s/%s", p.Name, p.Hash, id),
		Source: "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/namespaces/" +
			v1alpha1.Namespace + "/migrations/" + p.Name,
		Type:    typePrefix + eventTypes[news.Reason],
		Subject: one.Step, Time: one.At.UTC(),
		Data: Notified{Migration: p.Name, Plan: p.Hash, Cluster: p.Cluster.UID, Record: one.Seq,
			Warning: news.Warning, Message: news.Message, Report: "theseus report " + p.Name + " -o report.html"},
	}
}

// ToldUntil is the number of the last of a run's records whose news was sent, if noted is the number that the Migration
// has. A number that no process can have written is not believed.
func ToldUntil(past []engine.Record, noted int, say func(string)) int {
	last := 0
	if n := len(past); n > 0 {
		last = past[n-1].Seq
	}
	if noted > last {
		say(fmt.Sprintf("warning: notifications begin after record %d, the last one, because the Migration says that "+
			"those until record %d were sent", last, noted))
		return last
	}
	return noted
}

// HasNews reports whether a run that has stopped has news after a record.
func HasNews(records []engine.Record, after int) bool {
	narrator := NewNarrator(NewScript(&plan.Plan{}))
	return slices.ContainsFunc(records, func(one engine.Record) bool {
		return narrator.News(one).Reason != "" && one.Seq > after
	})
}

// notifying tells the news of a run from now on, after the news of past records that no process has sent. If no process
// has sent any, the past begins where the process before began. The news ends when lost does.
func (r *Run) notifying(lost context.Context, past []engine.Record) *Telling {
	if r.Notify == nil {
		return nil
	}
	told, found := 0, false
	if err := r.patiently(lost, func(ctx context.Context) (err error) {
		told, found, err = journal.Notified(ctx, r.Client.Dynamic, r.Plan.Name)
		return err
	}); err != nil {
		r.View.Say("warning: notifications begin with this process, because Theseus cannot read which were sent: " +
			"" + err.Error())
		told = len(past)
	}
	told = ToldUntil(past, told, r.View.Say)
	if !found {
		for _, one := range past {
			if one.Event == engine.Started || one.Event == engine.Resumed {
				told = max(told, one.Seq-1)
			}
		}
		// so that others know that news are sent
		if err := journal.SetNotified(lost, r.Client.Dynamic, r.Plan.Name, told); err != nil {
			r.View.Say("warning: Theseus cannot record in the cluster which notifications were sent: " + err.Error())
		}
	}
	t := Tell(lost, r.unfenced, r.Notify, r.Plan, told, r.View.Say)
	for _, one := range past {
		t.Record(one)
	}
	return t
}

// told ends the telling with the end of the run, after the lock was released: no run waits for an endpoint. A process
// that does not continue the run, which is of a command line, takes the time that one event may take, and tells an end
// of which there is no record.
func (r *Run) told(ctx context.Context, t *Telling, outcome engine.Outcome, err error) {
	switch {
	case t == nil:
		return
	case r.Continues || ctx.Err() != nil || err == nil && outcome.End == engine.EndInterrupted:
		t.sender.Close(context.WithoutCancel(ctx), notifyEnd)
		return
	}
	if state := outcome.State; outcome.End == engine.EndNeedsPerson && state.Phase != engine.PhaseNeedsPerson {
		now := engine.Record{Seq: state.Seq, Step: state.Step, At: time.Now()}
		t.sender.Add(t.event(now, News{true, "NeedsPerson", outcome.Cause},
			fmt.Sprintf("%d/stopped/%d", state.Seq, now.At.Unix())))
	}
	timer := time.AfterFunc(notifyEnd, func() {
		if n := t.sender.Waiting(); n > 0 {
			r.View.Say(fmt.Sprintf("waiting up to %s for %s, which has not taken %s; interrupt to end without it",
				notify.GiveUpAfter, r.Notify, cluster.Count(n, "notification")))
		}
	})
	t.sender.Close(ctx, notify.GiveUpAfter)
	timer.Stop()
}
