package plan_test

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/plan"
)

func surging(t testing.TB) *request {
	r := flannelToCalico(t)
	r.change.Strategy = "surge"
	r.change.AddHook, r.change.RemoveHook = "pool add", `pool "remove it"`
	return r
}

func TestSurge(t *testing.T) {
	p := mustMake(t, surging(t))
	t.Log(plan.Runbook(p))
}
