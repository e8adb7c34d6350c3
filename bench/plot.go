package main

import (
	"bytes"
	"fmt"
	"html"
)

// The plot's measures, in pixels.
const (
	plotWidth  = 900
	labelWidth = 300
	barHeight  = 16
	rowHeight  = 20
	titleSpace = 26
)

// plot draws a bar for each contender, a scale of its own for each work, with a line for the range.
func (b *bench) plot(works []work) []byte {
	var body bytes.Buffer
	y := 10
	for _, w := range works {
		y += titleSpace
		fmt.Fprintf(&body, `<text class="t" x="10" y="%d">%s  %s</text>`+"\n", y-6, w.letter, html.EscapeString(w.what))
		longest := 0.0
		for _, name := range contenders(w) {
			longest = max(longest, b.of(w, name).most)
		}
		scale := (plotWidth - labelWidth - 120) / longest
		for i, name := range contenders(w) {
			s := b.of(w, name)
			class := "o"
			switch {
			case name == ours:
				class = "w"
			case w.others[i-1].bound != "" || name == "loopback read":
				class = "b"
			}
			end := labelWidth + s.median*scale
			fmt.Fprintf(&body, `<text class="l" x="%d" y="%d">%s</text>`, labelWidth-8, y+12, html.EscapeString(name))
			fmt.Fprintf(&body, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, labelWidth, y, end-labelWidth, barHeight)
			fmt.Fprintf(&body, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d"/>`, labelWidth+s.least*scale, labelWidth+s.most*scale, y+barHeight/2)
			fmt.Fprintf(&body, `<text x="%.1f" y="%d">%s s</text>`+"\n", labelWidth+s.most*scale+6, y+12, seconds(s.median))
			y += rowHeight
		}
	}
	y += 10
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">
<style>
text { font: 12px sans-serif; fill: #222 } .t { font-weight: bold; font-size: 13px } .l { text-anchor: end }
.w { fill: #1b7f5c } .o { fill: #b9a27a } .b { fill: #cfd6dd } line { stroke: #222 }
</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, plotWidth, y, body.String())
}
