package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestNothingIsLeftOut: a report is merged into the one before, where what it leaves out would stay.
func TestNothingIsLeftOut(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{v1alpha1.BGP{}, `{"down":"","up":null,"routes":0}`},
		{v1alpha1.ProbeReportStatus{}, `{"generation":0,"seq":0,"at":"0001-01-01T00:00:00Z","paths":null,"bgp":null}`},
	} {
		if got, err := json.Marshal(test.value); err != nil || string(got) != test.want {
			t.Errorf("%T: %s (%v), not %s", test.value, got, err, test.want)
		}
	}
}
