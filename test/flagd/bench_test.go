package flagd

import (
	"context"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

const targetedSet = `{"flags": {"bpf": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off",
	"targeting": {"if": [{"and": [{"==": [{"var": "pool"}, "edge"]}, {"sem_ver": [{"var": "kernel"}, ">=", "5.15.0"]}]}, "on", "off"]}}}}`

// BenchmarkTargetedBoolean evaluates one targeted boolean flag of a prepared set, here and in flagd core.
func BenchmarkTargetedBoolean(b *testing.B) {
	values := map[string]any{"targetingKey": "node-17", "pool": "edge", "kernel": "6.1.0", "zone": "eu-1"}
	b.Run("theseus", func(b *testing.B) {
		set, err := flagset.Parse("bench", []byte(targetedSet), flagset.JSON, flagset.Strict)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		defer reportCPU(b)()
		for b.Loop() {
			prepared, err := flagset.NewContext(values)
			if err != nil {
				b.Fatal(err)
			}
			if r := set.Evaluate("bpf", prepared, 1_700_000_000).As(flagset.Boolean); r.Value != true {
				b.Fatalf("%+v", r)
			}
		}
	})
	b.Run("flagd", func(b *testing.B) {
		e, err := newReference()
		if err != nil {
			b.Fatal(err)
		}
		if err := load(e, []byte(targetedSet)); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		defer reportCPU(b)()
		for b.Loop() {
			if value, _, _, _, err := e.ResolveBooleanValue(context.Background(), "", "bpf", values); !value ||
				err != nil {
				b.Fatal(value, err)
			}
		}
	})
}

// reportCPU adds the time that the process was running: on a shared machine it says more than the time passed.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return usage.Utime.Nano() + usage.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}
