package probe

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

const (
	// tryLook is how often a new pod looks at its results.
	tryLook = 100 * time.Millisecond
	// tryBlocked is how long no denied probe of a new pod may be answered until its path counts as blocked: policies
	// are programmed a moment after a pod has its address.
	tryBlocked = 2 * time.Second
)

// Try tries paths until each has the expected result, for a time at most, and says which have not.
func Try(ctx context.Context, paths []v1alpha1.Path, within time.Duration) path.Tried {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	begun := time.Now()
	runner := NewRunner(Options{WarmUp: WarmUp})
	defer runner.Close()
	runner.SetPaths(paths)
	ticker := time.NewTicker(tryLook)
	defer ticker.Stop()
	leaks := map[string]leak{}
	for {
		over := false
		select {
		case <-ctx.Done():
			over = true
		case <-ticker.C:
		}
		now := time.Now()
		tried := path.Tried{Paths: len(paths), Millis: now.Sub(begun).Milliseconds()}
		results := map[string]v1alpha1.PathResult{}
		for _, result := range runner.Results() {
			results[result.ID] = result
		}
		for _, one := range paths {
			result := results[one.ID]
			if !one.Denied && result.Sent > 0 || one.Denied && blocked(leaks, result, begun, now) {
				continue
			}
			tried.Wrong(one)
		}
		if over || tried.Fault() == "" {
			return tried
		}
	}
}

// leak is how many denied probes of a path were answered, and when the last one was seen.
type leak struct {
	answers int64
	at      time.Time
}

// blocked reports whether a denied path had no answer for a while.
func blocked(leaks map[string]leak, result v1alpha1.PathResult, begun, now time.Time) bool {
	last, known := leaks[result.ID]
	switch {
	case !known:
		last = leak{at: begun}
	case result.Answered == last.answers:
		return now.Sub(last.at) >= tryBlocked
	}
	if result.Answered > last.answers {
		last = leak{result.Answered, now}
	}
	leaks[result.ID] = last
	return false
}
