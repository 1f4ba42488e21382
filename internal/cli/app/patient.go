package app

import (
	"context"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Glance bounds the retries of a command that only reads, or asks another process for something: a person waits for the
// answer, and can run the command again.
var Glance = outage.Limits{Away: 5 * time.Second, Refused: 5 * time.Second}

// Begin bounds the retries of a command that runs a migration, until the run begins: the engine has limits of its own.
var Begin = journal.Patience

// Patiently calls the API server. While the server is unavailable, or refuses calls as one that has just started does,
// it retries within the limits and prints on standard error why it waits.
func (a *App) Patiently(ctx context.Context, limits outage.Limits, call func(context.Context) error) error {
	return outage.Retry(ctx, limits, a.Waiting, call)
}

func (a *App) Waiting(err error) { fmt.Fprintf(a.Err, "waiting for the API server: %v\n", err) }

// Tell prints what a command waits for.
func (a *App) Tell(text string) { fmt.Fprintln(a.Err, text) }
