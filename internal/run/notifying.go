package run

import (
	"context"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

const (
	// typePrefix begins the types of events.
	typePrefix = "dev.theseus.run."
	// notifyEnd is how long the end of a run waits for notifications.
	notifyEnd = 10 * time.Second
)

// eventTypes are the types of events by the reason of the news, without typePrefix.
var eventTypes = map[string]string{"Began": "began", "Resumed": "resumed", "GroupDone": "wave-done", "GateFailed": "gate-failed", "Paused": "paused",
	"RollingBack": "rolling-back", "NeedsPerson": "needs-person", "Complete": "done", "RolledBack": "rolled-back"}

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

// notifying sends the news of a run until stopped. The news of past records that no process has sent come first: the Migration has the
// number of the last record whose news was sent. A failure is only a warning.
func (r *Run) notifying(ctx context.Context, past []engine.Record) (record func(engine.Record), stop func()) {
	if r.Notify == nil {
		return func(engine.Record) {}, func() {}
	}
	told := 0
	if err := r.patiently(ctx, func(ctx context.Context) (err error) {
		told, err = journal.Notified(ctx, r.Client.Dynamic, r.Plan.Name)
		return err
	}); err != nil {
		r.View.Say("warning: notifications begin with this process, as it is unknown which were sent: " + err.Error())
		told = len(past)
	}
	sender := r.Notify.Start(ctx, func(ctx context.Context, e notify.Event) {
		if err := journal.SetNotified(ctx, r.Client.Dynamic, r.Plan.Name, e.Data.(Notified).Record); err != nil && ctx.Err() == nil {
			r.View.Say("warning: another process may send the notification " + e.Type + " again: " + err.Error())
		}
	}, r.View.Say)
	narrator := NewNarrator(NewScript(r.Plan))
	record = func(one engine.Record) {
		news := narrator.News(one)
		if news.Reason == "" || one.Seq <= told {
			return
		}
		sender.Add(r.event(one, news))
	}
	for _, one := range past {
		record(one)
	}
	return record, func() { sender.Close(notifyEnd) }
}

// event is the event of a record.
func (r *Run) event(one engine.Record, news News) notify.Event {
	return notify.Event{
		ID:      fmt.Sprintf("%s/%s/%d", r.Plan.Name, r.Plan.Hash, one.Seq),
		Source:  "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/namespaces/" + v1alpha1.Namespace + "/migrations/" + r.Plan.Name,
		Type:    typePrefix + eventTypes[news.Reason],
		Subject: one.Step, Time: one.At.UTC(),
		Data: Notified{Migration: r.Plan.Name, Plan: r.Plan.Hash, Cluster: r.Plan.Cluster.UID, Record: one.Seq, Warning: news.Warning, Message: news.Message,
			Report: "theseus report " + r.Plan.Name + " -o report.html"},
	}
}
