# A guest in one boot sector. It writes a counter to one of 1,024 places, 64 KiB apart, of the first disk and then to the same place of
# the second, and goes on with the next number. It powers off when a key is pressed.
.code16
.global _start
_start:	cli
	xor %ax, %ax
	mov %ax, %ds
	mov %ax, %es
	mov %ax, %ss
	mov $0x7c00, %sp
	sti
again:	incl count
	movl count, %eax
	movl %eax, 0x8000
	imul $40503, %eax, %eax
	and $1023, %eax
	shl $7, %eax
	add $128, %eax
	movl %eax, lba
	mov $dap, %si
	mov $0x80, %dl
	mov $0x4300, %ax
	int $0x13
	mov $dap, %si
	mov $0x81, %dl
	mov $0x4300, %ax
	int $0x13
	mov $1, %ah
	int $0x16
	jz again
	mov $0x604, %dx
	mov $0x2000, %ax
	out %ax, %dx
stop:	hlt
	jmp stop
count:	.long 0
dap:	.byte 0x10, 0
	.word 1, 0x8000, 0
lba:	.quad 0
	.org 510
	.word 0xaa55
