package gguf

import (
	"encoding/binary"
	"math"

	"anemone/internal/float16"
)

// Each decode function sets dst to the values of all blocks in src; the
// lengths are checked by Dequantize. A value is scale*q, or scale*q - min or
// + min, where min may be a product too, and products are rounded before the
// sum: the conversions float32(a*b) keep compilers from fusing the two, which
// on arm64 they do even across statements. (All these products happen to be
// exact: at most 11 bits of fp16, 6 of a run's scale and 5 of a quant.) Halves
// of a block and their bytes are taken as pointers to arrays, so that no index
// in the inner loops needs a check.

// half decodes the fp16 number at the beginning of b. Nearly all are normal
// numbers: those take the short way.
func half(b []byte) float32 {
	h := binary.LittleEndian.Uint16(b)
	if e := h & 0x7c00; e != 0 && e != 0x7c00 {
		return math.Float32frombits(uint32(h&0x8000)<<16 | uint32(h&0x7fff)<<13 + 112<<23)
	}
	return float16.ToFloat32(h)
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(src)
		src = src[2:]
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float16.BFloat16ToFloat32(binary.LittleEndian.Uint16(src))
		src = src[2:]
	}
}

// decodeQ4_0: a scale, then 16 bytes: the low halves are the quants of the
// first 16 elements, the high halves those of the others. All types of 32
// elements share this order.
func decodeQ4_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d := half(src)
		q, lo, hi := (*[16]byte)(src[2:]), (*[16]float32)(dst), (*[16]float32)(dst[16:])
		for i, b := range q {
			lo[i] = d * float32(int32(b&15)-8)
			hi[i] = d * float32(int32(b>>4)-8)
		}
	}
}

// decodeQ4_1: a scale, a minimum, then quants as in Q4_0, without offset.
func decodeQ4_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[20:] {
		d, m := half(src), half(src[2:])
		q, lo, hi := (*[16]byte)(src[4:]), (*[16]float32)(dst), (*[16]float32)(dst[16:])
		for i, b := range q {
			lo[i] = float32(d*float32(int32(b&15))) + m
			hi[i] = float32(d*float32(int32(b>>4))) + m
		}
	}
}

// decodeQ5_0: a scale, 32 fifth bits, then the lower bits as in Q4_0.
func decodeQ5_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[22:] {
		d, h := half(src), binary.LittleEndian.Uint32(src[2:])
		q, lo, hi := (*[16]byte)(src[6:]), (*[16]float32)(dst), (*[16]float32)(dst[16:])
		for i, b := range q {
			lo[i] = d * float32(int32(uint32(b&15)|h<<4&16)-16)
			hi[i] = d * float32(int32(uint32(b>>4)|h>>12&16)-16)
			h >>= 1
		}
	}
}

// decodeQ5_1: a scale, a minimum, fifth bits, lower bits.
func decodeQ5_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[24:] {
		d, m, h := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
		q, lo, hi := (*[16]byte)(src[8:]), (*[16]float32)(dst), (*[16]float32)(dst[16:])
		for i, b := range q {
			lo[i] = float32(d*float32(int32(uint32(b&15)|h<<4&16))) + m
			hi[i] = float32(d*float32(int32(uint32(b>>4)|h>>12&16))) + m
			h >>= 1
		}
	}
}

// decodeQ8_0: a scale and 32 signed bytes.
func decodeQ8_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[34:] {
		d := half(src)
		q, out := (*[32]byte)(src[2:]), (*[32]float32)(dst)
		for i, b := range q {
			out[i] = d * float32(int8(b))
		}
	}
}

// iq4nl are the values that the quants of IQ4_NL stand for.
var iq4nl = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// decodeIQ4_NL: as Q4_0, with a table of values.
func decodeIQ4_NL(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d := half(src)
		q, lo, hi := (*[16]byte)(src[2:]), (*[16]float32)(dst), (*[16]float32)(dst[16:])
		for i, b := range q {
			lo[i] = d * iq4nl[b&15]
			hi[i] = d * iq4nl[b>>4]
		}
	}
}

// decodeQ2_K: 16 bytes with a scale (low half) and a minimum (high half) per
// 16 elements, 64 bytes of quants, the scale of the scales, that of the
// minima. 32 bytes of quants hold four runs of 32 elements, the first in the
// lowest two bits.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[84:] {
		d, dmin := half(src[80:]), half(src[82:])
		for g := range 16 { // 16 elements each
			s := src[g]
			scale, m := d*float32(int32(s&15)), float32(dmin*float32(int32(s>>4)))
			q, out := (*[16]byte)(src[16+g/8*32+g%2*16:]), (*[16]float32)(dst[16*g:])
			shift := g / 2 % 4 * 2
			for i, b := range q {
				out[i] = float32(scale*float32(int32(b>>shift&3))) - m
			}
		}
	}
}

// decodeQ3_K: 32 bytes of third bits (bit k of byte i is for element 32k+i; a
// zero means minus four), 64 bytes of lower bits as in Q2_K, 12 bytes with a
// scale of six bits per 16 elements, the scale of the scales.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[110:] {
		d := half(src[108:])
		s := src[96:108]
		for g := range 16 {
			// Four low bits of each scale in the first eight bytes, the two
			// high bits in the last four.
			scale := d * float32(int32(s[g%8]>>(g/8*4)&15|s[8+g%4]>>(g/4*2)&3<<4)-32)
			high, q, out := (*[16]byte)(src[g%2*16:]), (*[16]byte)(src[32+g/8*32+g%2*16:]), (*[16]float32)(dst[16*g:])
			bit, shift := g/2, g/2%4*2
			for i, b := range q {
				out[i] = scale * float32(int32(b>>shift&3|high[i]>>bit&1<<2)-4)
			}
		}
	}
}

// scalesK takes the eight scales and eight minima of six bits out of the 12
// bytes of Q4_K and Q5_K: those of the first four runs are the low bits of
// the first four bytes and the next four, the others have four bits in the
// last four bytes and two in what the first eight left free.
func scalesK(b []byte) (scales, mins [8]byte) {
	s := (*[12]byte)(b)
	for i := range 4 {
		scales[i], mins[i] = s[i]&63, s[4+i]&63
		scales[4+i] = s[8+i]&15 | s[i]>>6<<4
		mins[4+i] = s[8+i]>>4 | s[4+i]>>6<<4
	}
	return scales, mins
}

// decodeQ4_K: the scale of the scales, that of the minima, 12 bytes with both
// per 32 elements, 128 bytes of quants: of 32 bytes the low halves are one
// run of 32 elements, the high halves the next.
func decodeQ4_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[144:] {
		d, dmin := half(src), half(src[2:])
		scales, mins := scalesK(src[4:])
		for p := range 4 { // pairs of runs
			d0, m0 := d*float32(int32(scales[2*p])), float32(dmin*float32(int32(mins[2*p])))
			d1, m1 := d*float32(int32(scales[2*p+1])), float32(dmin*float32(int32(mins[2*p+1])))
			q, lo, hi := (*[32]byte)(src[16+32*p:]), (*[32]float32)(dst[64*p:]), (*[32]float32)(dst[64*p+32:])
			for i, b := range q {
				lo[i] = float32(d0*float32(int32(b&15))) - m0
				hi[i] = float32(d1*float32(int32(b>>4))) - m1
			}
		}
	}
}

// decodeQ5_K: as Q4_K, with 32 bytes of fifth bits before the quants: bit k
// of byte i is for element 32k+i.
func decodeQ5_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[176:] {
		d, dmin := half(src), half(src[2:])
		scales, mins := scalesK(src[4:])
		high := (*[32]byte)(src[16:])
		for p := range 4 {
			d0, m0 := d*float32(int32(scales[2*p])), float32(dmin*float32(int32(mins[2*p])))
			d1, m1 := d*float32(int32(scales[2*p+1])), float32(dmin*float32(int32(mins[2*p+1])))
			q, lo, hi := (*[32]byte)(src[48+32*p:]), (*[32]float32)(dst[64*p:]), (*[32]float32)(dst[64*p+32:])
			for i, b := range q {
				h := high[i] >> (2 * p)
				lo[i] = float32(d0*float32(int32(b&15|h&1<<4))) - m0
				hi[i] = float32(d1*float32(int32(b>>4|h>>1&1<<4))) - m1
			}
		}
	}
}

// decodeQ6_K: 128 bytes of four lower bits, 64 bytes of two upper bits, a
// signed byte of scale per 16 elements, the scale of the scales. Each half of
// a block takes 64 bytes of the lower bits: the low halves of the first 32
// and of the others are runs 0 and 1 of 32 elements, the high halves runs 2
// and 3; and 32 bytes of the upper bits, run 0 in the lowest.
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[210:] {
		d := half(src[208:])
		for g := range 4 { // half a block, then bytes 0 to 15 or 16 to 31 of its runs
			h, part := g/2, g%2*16
			low0, low1 := (*[16]byte)(src[64*h+part:]), (*[16]byte)(src[64*h+32+part:])
			high := (*[16]byte)(src[128+32*h+part:])
			s := (*[8]byte)(src[192+8*h:])
			k := g % 2
			d0, d1 := d*float32(int8(s[k])), d*float32(int8(s[2+k]))
			d2, d3 := d*float32(int8(s[4+k])), d*float32(int8(s[6+k]))
			out := dst[128*h+part:]
			o0, o1 := (*[16]float32)(out), (*[16]float32)(out[32:])
			o2, o3 := (*[16]float32)(out[64:]), (*[16]float32)(out[96:])
			for i, u := range high {
				a, b := low0[i], low1[i]
				o0[i] = d0 * float32(int32(a&15|u&3<<4)-32)
				o1[i] = d1 * float32(int32(b&15|u>>2&3<<4)-32)
				o2[i] = d2 * float32(int32(a>>4|u>>4&3<<4)-32)
				o3[i] = d3 * float32(int32(b>>4|u>>6<<4)-32)
			}
		}
	}
}
