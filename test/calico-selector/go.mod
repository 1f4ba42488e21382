module github.com/theseus-cni/theseus/test/calico-selector

go 1.26.0

require (
	github.com/projectcalico/calico v0.0.0-20251021213802-b1f3c43f8437
	github.com/theseus-cni/theseus v0.0.0
)

require (
	github.com/projectcalico/calico/lib/std v0.0.0-00010101000000-000000000000 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/theseus-cni/theseus => ../..

replace (
	github.com/projectcalico/api => github.com/projectcalico/api v0.0.0-20251022175904-f2ab03771208
	github.com/projectcalico/calico/lib/std => github.com/projectcalico/calico/lib/std v0.0.0-20251021213802-b1f3c43f8437
)
