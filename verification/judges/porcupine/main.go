// Porcupine as a second judge of histories: are the calls linearizable against a few append-only logs?
//
// Standard input has one JSON object a line: an operation of a history, as `verification.judges.export` writes it.
// Standard output gets one JSON object for each history, in the order in which they came.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// limit of one history's search.
const limit = 120 * time.Second

// part is what a write does to one log, or what a read asks of one.
type part struct {
	Log    int     `json:"log"`
	Start  int     `json:"start"` // offset of the first value; -1: not told
	Values []int64 `json:"values"`
}

// call is one operation. A write may have several parts, which happen at once.
type call struct {
	History string `json:"history"`
	Call    int64  `json:"call"`
	Return  *int64 `json:"return"` // null: it never came back, and may happen at any time or never
	Op      string `json:"op"`     // write, or observe
	Parts   []part `json:"parts"`
	End     *int   `json:"end"` // of an observation: the log is exactly so long; null: at least as long as was seen
}

// contents is one log: the first n values of a backing array that longer versions of the same log share.
type contents struct {
	backing *[]int64
	n       int
	hash    uint64
}

// state is all logs of a history.
type state []contents

func (c contents) appended(values []int64) contents {
	backing := c.backing
	for at, value := range values {
		if c.n+at < len(*backing) && (*backing)[c.n+at] != value {
			fresh := append(make([]int64, 0, 2*c.n+len(values)), (*backing)[:c.n]...)
			backing = &fresh
			break
		}
	}
	for at, value := range values {
		if c.n+at == len(*backing) {
			*backing = append(*backing, value)
		}
	}
	hash := c.hash
	for _, value := range values {
		hash = (hash ^ uint64(value)) * 0x9E3779B97F4A7C15
		hash ^= hash >> 29
	}
	return contents{backing, c.n + len(values), hash}
}

// claims has what answers told: log -> offset -> value. A state that contradicts one leads nowhere, because a log never
// changes what it has, so the search need not go there.
type claims []map[int]int64

func (c claims) allow(log, offset int, values []int64) bool {
	for at, value := range values {
		if claimed, known := c[log][offset+at]; known && claimed != value {
			return false
		}
	}
	return true
}

func claimsOf(calls []call, logs int) (claims, []map[int64]int) {
	told, where := make(claims, logs), make([]map[int64]int, logs)
	for log := range told {
		told[log], where[log] = map[int]int64{}, map[int64]int{}
	}
	for _, one := range calls {
		for _, p := range one.Parts {
			if p.Start < 0 {
				continue
			}
			for at, value := range p.Values {
				told[p.Log][p.Start+at] = value
				where[p.Log][value] = p.Start + at
			}
		}
	}
	return told, where
}

func model(calls []call, logs int) porcupine.Model {
	told, where := claimsOf(calls, logs)
	return porcupine.Model{
		Init: func() interface{} {
			made := make(state, logs)
			for log := range made {
				made[log].backing = &[]int64{}
			}
			return made
		},
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			now, one := before.(state), input.(call)
			if one.Op == "observe" {
				return observes(now, one), now
			}
			after := append(state{}, now...)
			for _, p := range one.Parts {
				n := now[p.Log].n
				if p.Start >= 0 && p.Start != n || !told.allow(p.Log, n, p.Values) {
					return false, now
				}
				for at, value := range p.Values {
					if place, known := where[p.Log][value]; known && place != n+at {
						return false, now
					}
				}
				after[p.Log] = now[p.Log].appended(p.Values)
			}
			return true, after
		},
		Equal: func(first, second interface{}) bool {
			one, other := first.(state), second.(state)
			for log := range one {
				if one[log].n != other[log].n || one[log].hash != other[log].hash {
					return false
				}
			}
			return true
		},
	}
}

// observes says whether the answer of a read, or of a question for the end, is that of these logs.
func observes(now state, one call) bool {
	p := one.Parts[0]
	log := now[p.Log]
	if p.Start+len(p.Values) > log.n || one.End != nil && *one.End != log.n {
		return false
	}
	for at, value := range p.Values {
		if (*log.backing)[p.Start+at] != value {
			return false
		}
	}
	return true
}

func judge(calls []call) porcupine.CheckResult {
	logs := 0
	for _, one := range calls {
		for _, p := range one.Parts {
			logs = max(logs, p.Log+1)
		}
	}
	origin := calls[0].Call
	for _, one := range calls {
		origin = min(origin, one.Call)
	}
	begins := earliest(calls, logs, origin)
	operations := make([]porcupine.Operation, 0, len(calls))
	for number, one := range calls {
		end := int64(math.MaxInt64)
		if one.Return != nil {
			end = (*one.Return-origin)*ticks + ticks - 1
		}
		if begins[number] > end {
			return porcupine.Illegal
		}
		operations = append(operations, porcupine.Operation{
			ClientId: number, Input: one, Call: begins[number], Return: end,
		})
	}
	return porcupine.CheckOperationsTimeout(model(calls, logs), operations, limit)
}

// ticks of the search's clock in a nanosecond: room to put what can only come later behind what it needs.
const ticks = 1 << 20

// item is a call's part at a place of its log. Places sort: what saw a length, then the write that made it longer.
type item struct {
	number, place int
	exact         bool // writes behind this place cannot have happened before it
}

// earliest has the first moment at which each call can have happened: not before it was made, and not before the calls
// whose effect it saw, or behind whose effect it stands. Without it the search tries calls in the order of their begin,
// and undoes them again in all combinations; no order of the calls that explains the answers is excluded.
func earliest(calls []call, logs int, origin int64) []int64 {
	told, where := claimsOf(calls, logs)
	begins := make([]int64, len(calls))
	items := make([][]item, logs)
	unseen := make([]int, logs) // the first place whose content is not known
	for log := range unseen {
		for known := true; known; unseen[log]++ {
			_, known = told[log][unseen[log]]
		}
		unseen[log]--
	}
	for number, one := range calls {
		begins[number] = (one.Call - origin) * ticks
		for _, p := range one.Parts {
			if one.Op == "observe" {
				end := p.Start + len(p.Values)
				items[p.Log] = append(items[p.Log], item{number, 2 * end, one.End != nil})
			} else if start := startOf(p, where[p.Log]); start >= 0 {
				items[p.Log] = append(items[p.Log], item{number, 2*start + 1, true})
			} else {
				items[p.Log] = append(items[p.Log], item{number, 2*unseen[p.Log] + 1, false})
			}
		}
	}
	for _, mine := range items {
		sort.SliceStable(mine, func(i, j int) bool { return mine[i].place < mine[j].place })
	}
	for changed, round := true, 0; changed && round < 50; round++ {
		changed = false
		for _, mine := range items {
			changed = sweep(mine, begins) || changed
		}
	}
	return begins
}

// sweep goes through one log's places and moves calls behind those that come before them.
func sweep(mine []item, begins []int64) bool {
	changed, bound := false, int64(-1)
	for at := 0; at < len(mine); {
		next, place := bound, mine[at].place
		for ; at < len(mine) && mine[at].place == place; at++ {
			number := mine[at].number
			if begins[number] <= bound {
				begins[number], changed = bound+1, true
			}
			if mine[at].exact {
				next = max(next, begins[number])
			}
		}
		bound = next
	}
	return changed
}

// startOf is the place of a write by its own answer, or by a read; -1: it was not seen.
func startOf(p part, where map[int64]int) int {
	if p.Start >= 0 {
		return p.Start
	}
	if place, known := where[p.Values[0]]; known {
		return place
	}
	return -1
}

func main() {
	var names []string
	histories := map[string][]call{}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	for decoder.More() {
		var one call
		if err := decoder.Decode(&one); err != nil {
			fmt.Fprintln(os.Stderr, "judges: not an operation:", err)
			os.Exit(2)
		}
		if one.Op != "write" && one.Op != "observe" || len(one.Parts) == 0 || one.Op == "observe" && len(one.Parts) > 1 {
			fmt.Fprintf(os.Stderr, "judges: not an operation that is known: %+v\n", one)
			os.Exit(2)
		}
		if _, known := histories[one.History]; !known {
			names = append(names, one.History)
		}
		histories[one.History] = append(histories[one.History], one)
	}
	out := json.NewEncoder(os.Stdout)
	for _, name := range names {
		begun := time.Now()
		found := judge(histories[name])
		out.Encode(map[string]interface{}{
			"history": name, "verdict": string(found), "operations": len(histories[name]),
			"ms": time.Since(begun).Milliseconds(),
		})
	}
}
