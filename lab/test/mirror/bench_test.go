package mirror

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// benchObjects is how many objects are copied. A tenth of them are Deployments.
const benchObjects = 2000

// BenchmarkCopy copies objects between two API servers on this machine, and applies the same objects with kubectl,
// client-side and server-side, one after the other. Reported are objects per second, reading and comparing included,
// and the CPU time of each program per object, in microseconds: other load changes the first much and the second
// little.
//
//	go test ./test/mirror -run '^$' -bench Copy -benchtime 1x
func BenchmarkCopy(b *testing.B) {
	p := newPair(b, false)
	p.blue.kubectl(b, "", "create", "namespace", "shop")
	var items []string
	for i := range benchObjects {
		if i%10 == 0 {
			items = append(items, fmt.Sprintf(
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"o%d","namespace":"shop"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},`+
					`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x","ports":[{"containerPort":80}]}]}}}}`,
				i))
		} else {
			items = append(items, fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o%d","namespace":"shop"},"data":{"a":"%d"}}`,
				i, i))
		}
	}
	list := `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
	p.blue.kubectl(b, list, "apply", "--server-side", "-f", "-")
	empty := func() {
		p.green.kubectl(b, "", "-n", "shop", "delete", "configmaps,deployments", "--all", "--wait=false")
	}
	rate := func(name string, cmd *exec.Cmd, says string) {
		begun := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			b.Fatalf("%v\n%s", err, out)
		}
		b.ReportMetric(benchObjects/time.Since(begun).Seconds(), name+"/s")
		b.ReportMetric(float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/benchObjects,
			name+"-cpu-µs")
		if len(out) < 1000 {
			b.Logf("%s", out)
		}
	}
	p.green.kubectl(b, "", "create", "namespace", "shop")
	for b.Loop() {
		rate("theseus", p.command(b.Context(), "copy", "-n", "shop"), "in step: ")
		rate("second-look", p.command(b.Context(), "copy", "-n", "shop"), "in step: ")
		for _, flags := range [][]string{{"--server-side=false"}, {"--server-side=true"}} {
			empty()
			cmd := exec.CommandContext(b.Context(), p.green.kube,
				append([]string{"kubectl", "--kubeconfig", p.green.kubeconfig, "apply", "-f", "-"}, flags...)...)
			cmd.Stdin = strings.NewReader(list)
			rate("kubectl"+flags[0], cmd, "o1999")
		}
		empty()
	}
}
