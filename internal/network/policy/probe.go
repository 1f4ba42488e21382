package policy

// Probe is a connection worth trying, and the differences (by index) that its verdict shows.
type Probe struct {
	Witness
	Shows []int
}

// Probes are connections whose verdicts show every difference. The smallest such set is a set cover, which is
// NP-hard; this is the greedy one, at most 1+ln(differences) times as large, out of a few candidates for each
// region that differs.
func (m *Model) Probes() []Probe {
	m.compare()
	widest := 0
	for i := range m.candidates {
		widest = max(widest, len(m.candidates[i].Shows))
	}
	// A probe waits in the row of as many differences as it was last seen to add.
	rows := make([][]int, widest+1)
	for i := range m.candidates {
		n := len(m.candidates[i].Shows)
		rows[n] = append(rows[n], i)
	}
	shown := make([]bool, len(m.differences))
	var chosen []Probe
	for n := widest; n > 0; n-- {
		for _, i := range rows[n] {
			adds := 0
			for _, d := range m.candidates[i].Shows {
				if !shown[d] {
					adds++
				}
			}
			if adds < n {
				rows[adds] = append(rows[adds], i)
				continue
			}
			for _, d := range m.candidates[i].Shows {
				shown[d] = true
			}
			chosen = append(chosen, m.candidates[i])
		}
	}
	return chosen
}
